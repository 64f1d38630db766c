"""``virtctl``: the commands, loaded only when called so that help and completion are instant."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

_COMMANDS = {
    "console": ("console", "Connect to a console of a virtual machine instance."),
    "fslist": ("guest", "Return full list of filesystems available on the guest machine."),
    "guestosinfo": ("guest", "Return guest agent info about operating system."),
    "help": ("guidance", "Help about any command"),
    "migrate": ("lifecycle", "Migrate a virtual machine."),
    "migrate-cancel": ("lifecycle", "Cancel migration of a virtual machine."),
    "pause": ("pause", "Pause a virtual machine"),
    "port-forward": ("portforward", "Forward local ports to a virtualmachine or virtualmachineinstance."),
    "reset": ("pause", "Reset a virtual machine instance"),
    "restart": ("lifecycle", "Restart a virtual machine."),
    "scp": ("ssh", "SCP files from/to a virtual machine instance."),
    "soft-reboot": ("pause", "Soft reboot a virtual machine instance"),
    "ssh": ("ssh", "Open a SSH connection to a virtual machine instance."),
    "start": ("lifecycle", "Start a virtual machine."),
    "stop": ("lifecycle", "Stop a virtual machine."),
    "unpause": ("pause", "Unpause a virtual machine"),
    "userlist": ("guest", "Return full list of logged in users on the guest machine."),
    "version": ("version", "Print the client and server version information."),
    "vnc": ("vnc", "Open a vnc connection to a virtual machine instance."),
}
"""Module and short help of each command."""

_HIDDEN = {"options": "guidance"}
"""Commands that help does not list, and their modules."""

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def program_name(argv0: str) -> str:
    """How help names this program: ``kubectl virt`` when started as its plugin."""
    name = Path(argv0).name
    return f"{name.removesuffix('-virt')} virt" if name.endswith("-virt") else "virtctl"


class _LazyGroup(click.Group):
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx):
            options = self.get_command(ctx, "options")
            assert options is not None
            args = flags_behind_command(options, args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, plain_switches(command, rest) if command is not None else rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Available Commands"):
            formatter.write_dl([(name, entry[1]) for name, entry in sorted(_COMMANDS.items())])


def flags_behind_command(options: click.Command, args: list[str]) -> list[str]:
    """Move the flags of every command (those of `options`) from before the command's name to behind it."""
    with_value = {name for option in _options_of(options) if not option.is_flag for name in option.opts}
    position = 0
    while position < len(args) and args[position].startswith("-"):
        # A value stands behind the flag, unless it follows an equals sign or, as in -nNAME, the letter.
        position += 2 if args[position] in with_value else 1
    return [*args[position : position + 1], *args[:position], *args[position + 1 :]]


def plain_switches(command: click.Command, args: list[str]) -> list[str]:
    """Read ``--switch=true`` as ``--switch``, and leave ``--switch=false`` out.

    Raises click.UsageError for other values.
    """
    switches = {name for option in _options_of(command) if option.is_flag for name in option.opts}
    result: list[str] = []
    for index, text in enumerate(args):
        if text == "--":
            return result + args[index:]
        name, equals, value = text.partition("=")
        if not equals or name not in switches or value in _TRUE:
            result.append(name if name in switches else text)
        elif value not in _FALSE:
            raise click.UsageError(f'invalid argument "{value}" for "{name}" flag')
    return result


def _options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


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
        sys.stderr.write(f"{error.format_message()}\n")
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
