"""``memory-dump``: dumps of guests' memory, into claims, and from these to a file."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from typing import Any

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.api import cdi_labels, cdi_names
from virtplane.api import resources as kinds
from virtplane.cli.virtctl.connection import Connection, connected, put
from virtplane.cli.virtctl.exporting.download import Wish
from virtplane.cli.virtctl.exporting.exports import Export
from virtplane.cli.virtctl.exporting.vmexport import fetch

_MODES = ("ReadWriteOnce", "ReadWriteMany")
_MEBIBYTE = 1 << 20
_EXTRA_BYTES = 100 * _MEBIBYTE
"""What a dump may need beside the guest's memory."""

_USUAL_OVERHEAD = Fraction(55, 1000)
"""The share of volumes that file systems take, where CDI says none."""

_POLL_SECONDS, _DUMP_SECONDS = 2.0, 600.0
_RETRIES = 2


@click.command(name="memory-dump")
@click.argument("action", metavar="get/download/remove")
@click.argument("name", metavar="(VM)")
@click.option("--claim-name", default="", help="The claim that takes the dump.")
@click.option("--create-claim", is_flag=True, help="Make the claim first.")
@click.option("--storage-class", default="", help="Storage class of a new claim.")
@click.option("--access-mode", default="", help="ReadWriteOnce (default) or ReadWriteMany, for a new claim.")
@click.option("--output", default="", help="Where the dump is saved here.")
@click.option("--format", "format_", default="", help="gzip (default) or raw.")
@click.option("--port-forward", is_flag=True, help="Reach the export server through the API server.")
@click.option("--local-port", default="0", help="Local port of --port-forward; 0 chooses one.")
@connected
async def memory_dump(client: Client, connection: Connection, action: str, name: str, **given: Any) -> None:
    """Write a running guest's memory into a claim."""
    if action == "remove":
        path = connection.subresource("virtualmachines", name, "removememorydump")
        await put(client, path, None, "error removing memory dump association, ")
        click.echo(f"Successfully submitted remove memory dump association of VM {name}")
        return
    if action not in ("get", "download"):
        raise click.ClickException(f"invalid action type {action}")
    _check_download(action, given)
    if action == "get":
        if given["create_claim"]:
            await _create_claim(client, connection, name, given)
        await _request(client, connection, name, given["claim_name"])
    if given["output"]:
        claim = await _dumped(client, connection, name)
        export = Export(connection.namespace, f"export-{name}-{claim}", ("pvc", claim))
        wish = Wish(format=given["format_"].lower(), insecure=True, retries=_RETRIES)
        await fetch(client, export, wish, given["output"], keep=None)


def _check_download(action: str, given: dict[str, Any]) -> None:
    """Raises click.ClickException."""
    if action == "download" and not given["output"]:
        raise click.ClickException("missing outputFile to download the memory dump")
    if given["format_"].lower() not in ("", "gzip", "raw"):
        raise click.ClickException("--format is not a valid value, acceptable values are gzip/raw")
    if given["output"] and given["port_forward"]:
        raise click.ClickException(
            "--port-forward is not there yet: the export's own address has to be reached"
        )


async def _request(client: Client, connection: Connection, name: str, claim: str) -> None:
    path = connection.subresource("virtualmachines", name, "memorydump")
    body: JsonObject = {"claimName": claim, "phase": ""}
    await put(client, path, body, "error dumping vm memory, ")
    click.echo(f"Successfully submitted memory dump request of VM {name}")


async def _dumped(client: Client, connection: Connection, name: str) -> str:
    """The claim with the dump, once it is complete. Raises click.ClickException."""
    try:
        async with asyncio.timeout(_DUMP_SECONDS):
            while True:
                machine = await client.get(kinds.VIRTUAL_MACHINES, name, connection.namespace)
                request = get_object(machine, "status", "memoryDumpRequest")
                phase = get_str(request, "phase")
                if phase == "Completed":
                    click.echo("Memory dump completed successfully")
                    return get_str(request, "claimName")
                if request:
                    click.echo(f"Waiting for memorydump  to complete, current phase: {phase}...")
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise click.ClickException("context deadline exceeded") from error


async def _create_claim(client: Client, connection: Connection, name: str, given: dict[str, Any]) -> None:
    """Make a claim that is large enough for the dump. Raises click.ClickException, StatusError."""
    claim, namespace = given["claim_name"], connection.namespace
    if not claim:
        raise click.ClickException("missing claim name")
    machine = await client.get(kinds.VIRTUAL_MACHINES, name, namespace)
    if get_object(machine, "status", "memoryDumpRequest"):
        text = (
            "please remove current memory dump association before creating a new claim for a new memory dump"
        )
        raise click.ClickException(text)
    try:
        await client.get(resources.PERSISTENT_VOLUME_CLAIMS, claim, namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
    else:
        text = "already exists, check if it should be created if not remove create flag"
        raise click.ClickException(f"PVC {namespace}/{claim} {text}")
    instance = await client.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, namespace)
    storage_class = given["storage_class"]
    size = claim_mebibytes(instance, await _overhead(client, storage_class))
    spec: JsonObject = {
        "accessModes": [_mode(given["access_mode"])],
        "resources": {"requests": {"storage": f"{size}Mi"}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    metadata = {"name": claim, "namespace": namespace, "labels": {cdi_labels.APPLY_STORAGE_PROFILE: "true"}}
    wish = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": metadata, "spec": spec}
    await client.create(resources.PERSISTENT_VOLUME_CLAIMS, wish)
    click.echo(f"PVC {namespace}/{claim} created")


def claim_mebibytes(instance: JsonObject, overhead: Fraction) -> int:
    """The size of the claim for a dump: the guest's memory and some more, with the file system's share."""
    domain = get_object(instance, "spec", "domain")
    requested = get_object(domain, "resources", "requests").get("memory")
    # Where nothing is requested, KubeVirt's own program makes claims that are too small.
    memory = requested or get_object(domain, "memory").get("guest") or 0
    size = (int(Quantity.parse(memory).value) + _EXTRA_BYTES) * (1 + overhead)
    return math.ceil(size / _MEBIBYTE)


async def _overhead(client: Client, storage_class: str) -> Fraction:
    """The share that CDI's configuration gives to file systems of the class."""
    try:
        config = await client.get(kinds.CDI_CONFIGS, cdi_names.CONFIG)
    except StatusError as error:
        if not is_not_found(error):
            raise
        # Two signs, as in KubeVirt's own program.
        click.echo("Using default 5.5%% filesystem overhead for pvc size")
        return _USUAL_OVERHEAD
    shares = get_object(config, "status", "filesystemOverhead")
    return Fraction(str(get_object(shares, "storageClass").get(storage_class) or shares.get("global") or 0))


def _mode(mode: str) -> str:
    if mode == "ReadOnlyMany":
        text = "cannot dump memory to a readonly pvc, use either ReadWriteOnce or ReadWriteMany if supported"
        raise click.ClickException(text)
    if mode and mode not in _MODES:
        text = "invalid access mode, use either ReadWriteOnce or ReadWriteMany if supported"
        raise click.ClickException(text)
    return mode or _MODES[0]


COMMANDS = {"memory-dump": memory_dump}
