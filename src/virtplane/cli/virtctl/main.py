"""``virtctl``: loads a command only when it is called, so that help and completion are fast."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from virtplane.cli.virtctl.usage import Commands, explain

_COMMANDS = {
    "addvolume": ("volumes", "Plug a claim or a DataVolume into a running guest."),
    "adm": ("adm", "Settings of the installation, and what a drain would do."),
    "completion": ("completion", "Scripts that have a shell complete this program's commands."),
    "console": ("talking.console", "Open a guest's serial console in this terminal."),
    "create": ("creating.create", "Write manifests to standard output."),
    "credentials": ("credentials", "SSH keys and passwords of a VM's guest."),
    "evacuate-cancel": ("lifecycle", "Take back a guest's request to leave its node."),
    "expand": (
        "views",
        "Show a VM with all that its instance type and preference add.",
    ),
    "explain-status": (
        "explaining.explainstatus",
        "Say why a VM waits, which field to change, and the numbers.",
    ),
    "expose": ("expose", "Make a service that leads to a VM, an instance or a replica set."),
    "fslist": ("guest", "List a guest's file systems."),
    "guestfs": ("guestfs", "Open a shell with libguestfs beside a claim's disk."),
    "guestosinfo": ("guest", "Show what a guest's agent says of its system."),
    "help": ("guidance", "Show the help of a command."),
    "image-upload": ("uploading.imageupload", "Send a disk image from here into a DataVolume or claim."),
    "import": ("importing.importvm", "Make a virtual machine from a disk image, an OVA or a URL."),
    "memory-dump": ("memorydump", "Write a running guest's memory into a claim."),
    "migrate": ("lifecycle", "Move a running guest to another node."),
    "migrate-cancel": ("lifecycle", "Stop the migration of a guest that is under way."),
    "objectgraph": ("views", "Show which objects a VM or its instance depends on."),
    "pause": ("pause", "Freeze a running guest."),
    "permitted-devices": ("views", "Show which devices of nodes guests may have."),
    "port-forward": ("talking.portforward", "Lead local ports to ports of a guest."),
    "removevolume": ("volumes", "Unplug a volume from a running guest."),
    "reset": ("pause", "Press a guest's reset button."),
    "restart": ("lifecycle", "Stop a VM's guest and start it again."),
    "scp": ("talking.ssh", "Copy files to or from a guest by OpenSSH."),
    "soft-reboot": ("pause", "Ask a guest to reboot by itself."),
    "ssh": ("talking.ssh", "Log in to a guest by OpenSSH."),
    "start": ("lifecycle", "Start a VM."),
    "stop": ("lifecycle", "Shut a VM down."),
    "template": ("templates.template", "VirtualMachineTemplates: fill them in, make and convert them."),
    "unpause": ("pause", "Let a frozen guest run on."),
    "usbredir": ("talking.usbredir", "Lend a USB device of this machine to a guest."),
    "userlist": ("guest", "List who is logged in to a guest."),
    "version": ("version", "Show the versions of this program and of the server."),
    "vmexport": ("exporting.vmexport", "Make exports of volumes, delete and download them."),
    "vnc screenshot": ("talking.vnc", "Save a picture of a guest's display."),
    "vnc": ("talking.vnc", "Open a guest's display."),
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


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def virtctl(context: click.Context) -> None:
    """Works with the virtual machines of a Kubernetes cluster."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(argv: list[str] | None = None) -> int:
    """Console script of ``virtctl`` and ``kubectl-virt``; returns the exit code (0 or 1)."""
    name = program_name(sys.argv[0])
    try:
        result = virtctl.main(args=argv, prog_name=name, standalone_mode=False)
    except click.exceptions.Abort:
        return 1
    except click.ClickException as error:
        # Only when it is needed: help and completion are fast.
        from virtplane.cli.virtctl.documents import harmless

        sys.stderr.write(f"{harmless(explain(error))}\n")
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
