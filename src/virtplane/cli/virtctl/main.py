"""``virtctl``: loads a command only when it is called, so that help and completion are fast."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from virtplane.cli.virtctl.usage import Commands, explain

_COMMANDS = {
    "addvolume": ("volumes", "add a volume to a running VM"),
    "adm": ("adm", "Administrate KubeVirt configuration."),
    "completion": ("completion", "Generate the autocompletion script for the specified shell"),
    "console": ("console", "Connect to a console of a virtual machine instance."),
    "create": ("create", "Create a manifest for the specified Kind."),
    "credentials": ("credentials", "Manipulate credentials on a virtual machine."),
    "evacuate-cancel": ("lifecycle", "Cancel evacuation for a VM, VMI, or all VMIs on a node"),
    "expand": (
        "views",
        "Return the VirtualMachine object with expanded instancetype and preference.",
    ),
    "expose": (
        "expose",
        "Expose a virtual machine instance, virtual machine, or virtual machine instance replica set as a new"
        " service.",
    ),
    "fslist": ("guest", "Return full list of filesystems available on the guest machine."),
    "guestfs": ("guestfs", "Start a shell into the libguestfs pod"),
    "guestosinfo": ("guest", "Return guest agent info about operating system."),
    "help": ("guidance", "Help about any command"),
    "image-upload": ("imageupload", "Upload a VM image to a DataVolume/PersistentVolumeClaim."),
    "import": ("importvm", "Make a virtual machine from a disk image, an OVA or a URL."),
    "memory-dump": ("memorydump", "Dump the memory of a running VM to a pvc"),
    "migrate": ("lifecycle", "Migrate a virtual machine."),
    "migrate-cancel": ("lifecycle", "Cancel migration of a virtual machine."),
    "objectgraph": ("views", "Returns dependency graph related to a VM|VMI."),
    "pause": ("pause", "Pause a virtual machine"),
    "permitted-devices": ("views", "List the permitted devices for vmis."),
    "port-forward": ("portforward", "Forward local ports to a virtualmachine or virtualmachineinstance."),
    "removevolume": ("volumes", "remove a volume from a running VM"),
    "reset": ("pause", "Reset a virtual machine instance"),
    "restart": ("lifecycle", "Restart a virtual machine."),
    "scp": ("ssh", "SCP files from/to a virtual machine instance."),
    "soft-reboot": ("pause", "Soft reboot a virtual machine instance"),
    "ssh": ("ssh", "Open a SSH connection to a virtual machine instance."),
    "start": ("lifecycle", "Start a virtual machine."),
    "stop": ("lifecycle", "Stop a virtual machine."),
    "template": ("template", "VirtualMachineTemplates: fill them in, make and convert them."),
    "unpause": ("pause", "Unpause a virtual machine"),
    "usbredir": ("usbredir", "Redirect an USB device to a virtual machine instance."),
    "userlist": ("guest", "Return full list of logged in users on the guest machine."),
    "version": ("version", "Print the client and server version information."),
    "vmexport": ("vmexport", "Export a VM volume."),
    "vnc screenshot": ("vnc", "Create a VNC screenshot of a virtual machine instance."),
    "vnc": ("vnc", "Open a vnc connection to a virtual machine instance."),
}
"""Module and short help of each command."""

_HIDDEN = {"options": "guidance"}
"""Commands that help does not list, and their modules."""


def program_name(argv0: str) -> str:
    """The program's name in help: ``kubectl virt`` when started as the kubectl plugin."""
    name = Path(argv0).name
    return f"{name.removesuffix('-virt')} virt" if name.endswith("-virt") else "virtctl"


class _LazyGroup(Commands):
    """click's way to load a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = _COMMANDS[cmd_name][0] if cmd_name in _COMMANDS else _HIDDEN.get(cmd_name)
        if name is None:
            return None
        module = importlib.import_module(f"virtplane.cli.virtctl.{name}")
        command: click.Command = module.COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Available Commands"):
            names = [name for name in sorted(_COMMANDS) if " " not in name]
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in names])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def virtctl() -> None:
    """virtctl controls virtual machine related operations on your kubernetes cluster."""


def main(argv: list[str] | None = None) -> int:
    """Console script of ``virtctl`` and ``kubectl-virt``; returns the exit code (0 or 1)."""
    name = program_name(sys.argv[0])
    try:
        result = virtctl.main(args=argv, prog_name=name, standalone_mode=False)
    except click.exceptions.Abort:
        return 1
    except click.ClickException as error:
        sys.stderr.write(f"{explain(error)}\n")
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
