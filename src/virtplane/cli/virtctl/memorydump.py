"""``memory-dump``: asks for a dump of a guest's memory into a claim."""

from __future__ import annotations

from typing import Any

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_object
from virtplane.api import resources as kinds
from virtplane.cli.virtctl.connection import Connection, connected, put

_MODES = ("ReadWriteOnce", "ReadWriteMany")


@click.command(name="memory-dump")
@click.argument("action", metavar="get/download/remove")
@click.argument("name", metavar="(VM)")
@click.option("--claim-name", default="", help="The claim that takes the dump.")
@click.option("--create-claim", is_flag=True, help="Make the claim first.")
@click.option("--storage-class", default="", help="Storage class of a new claim.")
@click.option("--access-mode", default="", help="ReadWriteOnce (default) or ReadWriteMany, for a new claim.")
@click.option("--output", default="", help="Where the dump is saved here.")
@click.option("--format", "format_", default="", help="gzip (default) or raw.")
@click.option("--port-forward", is_flag=True, help="Download through a forwarded port.")
@click.option("--local-port", default="0", help="Local port of --port-forward; 0 chooses one.")
@connected
async def memory_dump(client: Client, connection: Connection, action: str, name: str, **given: Any) -> None:
    """Write a running guest's memory into a claim."""
    if action == "remove":
        path = connection.subresource("virtualmachines", name, "removememorydump")
        await put(client, path, {}, "error removing memory dump association, ")
        click.echo(f"Successfully submitted remove memory dump association of VM {name}")
        return
    if action not in ("get", "download"):
        raise click.ClickException(f"invalid action type {action}")
    if action == "download" and not given["output"]:
        raise click.ClickException("missing outputFile to download the memory dump")
    if given["output"]:
        # Nothing is asked for, or made, whose end could only be a failure.
        text = "downloading a memory dump needs a VirtualMachineExport, and this server exports nothing yet"
        raise click.ClickException(text)
    if given["create_claim"]:
        await _check_claim(client, connection, name, given)
    await _request(client, connection, name, given["claim_name"])


async def _request(client: Client, connection: Connection, name: str, claim: str) -> None:
    path = connection.subresource("virtualmachines", name, "memorydump")
    body: JsonObject = {"claimName": claim, "phase": ""}
    await put(client, path, body, "error dumping vm memory, ")
    click.echo(f"Successfully submitted memory dump request of VM {name}")


async def _check_claim(client: Client, connection: Connection, name: str, given: dict[str, Any]) -> None:
    """Always raises click.ClickException: with what is wrong, or as no dump would fill the new claim."""
    claim, mode = given["claim_name"], given["access_mode"]
    if not claim:
        raise click.ClickException("missing claim name")
    machine = await client.get(kinds.VIRTUAL_MACHINES, name, connection.namespace)
    if get_object(machine, "status", "memoryDumpRequest"):
        text = (
            "please remove current memory dump association before creating a new claim for a new memory dump"
        )
        raise click.ClickException(text)
    try:
        await client.get(resources.PERSISTENT_VOLUME_CLAIMS, claim, connection.namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
    else:
        text = "already exists, check if it should be created if not remove create flag"
        raise click.ClickException(f"PVC {connection.namespace}/{claim} {text}")
    if mode == "ReadOnlyMany":
        text = "cannot dump memory to a readonly pvc, use either ReadWriteOnce or ReadWriteMany if supported"
        raise click.ClickException(text)
    if mode and mode not in _MODES:
        text = "invalid access mode, use either ReadWriteOnce or ReadWriteMany if supported"
        raise click.ClickException(text)
    raise click.ClickException("this server dumps no memory yet: no claim is created for it")


COMMANDS = {"memory-dump": memory_dump}
