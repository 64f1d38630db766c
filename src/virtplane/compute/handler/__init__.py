"""virt-handler: runs the virtual machine instances of one node.

``controller`` reconciles each VirtualMachineInstance of the node with its ``machine``. A machine is made of
the launcher (``launchers``) and what the node hands over to its container (``handover``), the domain that
``libvirtd`` runs there, the ``agent`` in the guest, ``storage`` and ``network``; ``hotplug`` changes it while
it runs, and ``hooks`` ask those who have a say in it. Pure functions in ``decisions`` and ``status`` decide
what to do. ``node`` advertises the node itself, ``consoles`` answers virt-api. Everything is found again
after a restart: state lives in the API, in libvirt, in the pods' folders and (``thaws``) in a folder of the
node's own.
"""
