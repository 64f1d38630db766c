"""``pause``, ``unpause``, ``reset`` and ``soft-reboot``."""

from __future__ import annotations

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.objects.structs import decode
from virtplane.cli.virtctl.connection import Connection, connected, dry_run_body, put

_MACHINES = ("vm", "virtualmachine")
_INSTANCES = ("vmi", "virtualmachineinstance")


@click.command()
@click.argument("kind", metavar="vm|vmi")
@click.argument("name", metavar="(VM)|(VMI)")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def pause(client: Client, connection: Connection, kind: str, name: str, dry_run: bool) -> None:
    """Freeze a running guest."""
    body, kind = dry_run_body(dry_run), kind.lower()
    if kind in _MACHINES:
        halted = await _is_halted(client, connection, name)
        why = f". VirtualMachine {name} is not set to run" if halted else ", it was not found"
        await _pause(client, connection, name, body, missing=why)
    elif kind in _INSTANCES:
        await _pause(client, connection, name, body)
    click.echo(f"VMI {name} was scheduled to pause")


@click.command()
@click.argument("kind", metavar="vm|vmi")
@click.argument("name", metavar="(VM)|(VMI)")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def unpause(client: Client, connection: Connection, kind: str, name: str, dry_run: bool) -> None:
    """Let a frozen guest run on."""
    body, kind = dry_run_body(dry_run), kind.lower()
    if kind in _MACHINES:
        await _is_halted(client, connection, name)
    if kind in _MACHINES + _INSTANCES:
        path = connection.subresource("virtualmachineinstances", name, "unpause")
        await put(client, path, body, f"Error unpausing VirtualMachineInstance {name}: ")
        click.echo(f"VMI {name} was scheduled to unpause")


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def reset(client: Client, connection: Connection, name: str) -> None:
    """Press a guest's reset button."""
    path = connection.subresource("virtualmachineinstances", name, "reset")
    await put(client, path, None, f"Error reseting VirtualMachineInstance {name}: ")
    click.echo(f"VMI {name} was scheduled to reset")


@click.command(name="soft-reboot")
@click.argument("name", metavar="(VMI)")
@connected
async def soft_reboot(client: Client, connection: Connection, name: str) -> None:
    """Ask a guest to reboot by itself."""
    path = connection.subresource("virtualmachineinstances", name, "softreboot")
    await put(client, path, None, f"Error soft rebooting VirtualMachineInstance {name}: ")
    click.echo(f"VMI {name} was scheduled to soft-reboot")


async def _is_halted(client: Client, connection: Connection, name: str) -> bool:
    from virtplane.api.kubevirt_v1.vm import VirtualMachine
    from virtplane.api.resources import VIRTUAL_MACHINES

    try:
        machine = await client.get(VIRTUAL_MACHINES, name, connection.namespace)
    except StatusError as error:
        raise click.ClickException(f"Error getting VirtualMachine {name}: {error.message}") from error
    spec = decode(VirtualMachine, machine).spec
    return spec.run_strategy == "Halted" or spec.running is False


async def _pause(
    client: Client, connection: Connection, name: str, body: dict[str, object], *, missing: str = ""
) -> None:
    failure = f"Error pausing VirtualMachineInstance {name}"
    try:
        await client.request(
            "PUT", connection.subresource("virtualmachineinstances", name, "pause"), body=body
        )
    except StatusError as error:
        why = missing if missing and error.code == 404 else f": {error.message}"
        raise click.ClickException(failure + why) from error


COMMANDS = {"pause": pause, "unpause": unpause, "reset": reset, "soft-reboot": soft_reboot}
