"""``guestosinfo``, ``userlist`` and ``fslist``."""

from __future__ import annotations

import json

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.cli.virtctl.connection import Connection, connected


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def guestosinfo(client: Client, connection: Connection, name: str) -> None:
    """Return guest agent info about operating system."""
    failure = f"Error getting guestosinfo of VirtualMachineInstance {name}, "
    await _show(client, connection, name, "guestosinfo", failure)


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def userlist(client: Client, connection: Connection, name: str) -> None:
    """Return full list of logged in users on the guest machine."""
    failure = f"Error listing users of VirtualMachineInstance {name}, "
    await _show(client, connection, name, "userlist", failure)


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def fslist(client: Client, connection: Connection, name: str) -> None:
    """Return full list of filesystems available on the guest machine."""
    failure = f"Error listing filesystems of VirtualMachineInstance {name}, "
    await _show(client, connection, name, "filesystemlist", failure)


async def _show(client: Client, connection: Connection, name: str, action: str, failure: str) -> None:
    try:
        path = connection.subresource("virtualmachineinstances", name, action)
        answer = await client.request("GET", path)
    except StatusError as error:
        raise click.ClickException(f"{failure}{error.message}") from error
    click.echo(json.dumps(answer.json(), indent=2))


COMMANDS = {"guestosinfo": guestosinfo, "userlist": userlist, "fslist": fslist}
