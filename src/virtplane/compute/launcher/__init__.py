"""virt-launcher: the small supervisor inside each virtual machine's pod. Standard library only.

It prepares the container's directories, starts a libvirt session daemon when virt-handler says so, answers
the guest's DHCP requests, reaps processes, and ends when its guest has ended. Everything else is decided by
virt-handler, which talks to it through ``control`` and to libvirt through its own socket. The launcher keeps
working while virt-handler is away.

Beside it are the small programs that others run in the launcher's container: ``probe`` (kubelet, for guests'
probes), ``freezer`` (backup tools) and ``containerdisk`` (pods that hold volumes); and ``virtpasst``, which
it starts itself, for guests whose network passt serves.

Nothing here may import beyond the standard library, and of that only what the loop needs: this process runs
once per virtual machine, and its memory and its start count. ``pathlib``, ``argparse``, ``typing``,
``dataclasses``, ``uuid``, ``shutil`` and ``ipaddress`` would double that: paths are strings here.
"""
