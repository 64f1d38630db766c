"""``help`` and ``options``."""

from __future__ import annotations

from typing import Any

import click

from virtplane.cli.virtctl.globalflags import global_flags


@click.command(name="help")
@click.argument("command", nargs=-1)
@click.pass_context
def show_help(context: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command."""
    top = context.find_root()
    group = top.command
    if not command or not isinstance(group, click.Group):
        click.echo(group.get_help(top))
        return
    found = group.get_command(top, command[0])
    if found is None:
        raise click.ClickException(f'unknown command "{command[0]}" for "{top.info_name}"')
    with click.Context(found, info_name=command[0], parent=top) as inner:
        click.echo(found.get_help(inner))


@click.command(hidden=True)
@global_flags
@click.pass_context
def options(own: click.Context, /, **given: Any) -> None:
    """Show the flags that every command has."""
    formatter = own.make_formatter()
    records = (parameter.get_help_record(own) for parameter in own.command.params)
    formatter.write("The following options can be passed to any command:\n\n")
    with formatter.indentation():
        formatter.write_dl([record for record in records if record is not None])
    click.echo(formatter.getvalue().rstrip("\n"))


COMMANDS = {"help": show_help, "options": options}
