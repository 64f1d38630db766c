"""``guestosinfo``, ``userlist`` and ``fslist``."""

from __future__ import annotations

import click

from kubecore.client import Client
from kubecore.errors import StatusError
from virtplane.cli.virtctl.connection import Connection, answered, connected
from virtplane.cli.virtctl.documents import Fields, as_json, in_order

_USER: Fields = dict.fromkeys(("userName", "domain", "loginTime"))
_FILESYSTEM: Fields = {
    **dict.fromkeys(("diskName", "mountPoint", "fileSystemType", "usedBytes", "totalBytes")),
    "disk": dict.fromkeys(("serial", "busType")),
}
_SYSTEM = ("name", "kernelRelease", "version", "prettyName", "versionId", "kernelVersion", "machine", "id")
_GUEST: Fields = {
    "kind": None,
    "apiVersion": None,
    "guestAgentVersion": None,
    "supportedCommands": dict.fromkeys(("name", "enabled")),
    "hostname": None,
    "os": dict.fromkeys(_SYSTEM),
    "timezone": None,
    "userList": _USER,
    "fsInfo": {"disks": _FILESYSTEM},
    "fsFreezeStatus": None,
}


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def guestosinfo(client: Client, connection: Connection, name: str) -> None:
    """Show what a guest's agent says of its system."""
    failure = f"Error getting guestosinfo of VirtualMachineInstance {name}, "
    await _show(client, connection, name, "guestosinfo", _GUEST, failure)


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def userlist(client: Client, connection: Connection, name: str) -> None:
    """List who is logged in to a guest."""
    failure = f"Error listing users of VirtualMachineInstance {name}, "
    await _show(client, connection, name, "userlist", {"metadata": None, "items": _USER}, failure)


@click.command()
@click.argument("name", metavar="(VMI)")
@connected
async def fslist(client: Client, connection: Connection, name: str) -> None:
    """List a guest's file systems."""
    failure = f"Error listing filesystems of VirtualMachineInstance {name}, "
    await _show(client, connection, name, "filesystemlist", {"metadata": None, "items": _FILESYSTEM}, failure)


async def _show(
    client: Client, connection: Connection, name: str, action: str, fields: Fields, failure: str
) -> None:
    try:
        path = connection.subresource("virtualmachineinstances", name, action)
        answer = await client.request("GET", path)
    except StatusError as error:
        raise click.ClickException(f"{failure}{answered(error, name)}") from error
    click.echo(as_json(in_order(answer.json(), fields), indent=2))


COMMANDS = {"guestosinfo": guestosinfo, "userlist": userlist, "fslist": fslist}
