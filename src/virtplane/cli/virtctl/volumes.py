"""``addvolume`` and ``removevolume``: volumes of running machines."""

from __future__ import annotations

from typing import Any

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from virtplane.api import resources as kinds
from virtplane.cli.virtctl.connection import Connection, connected, dry_run_body

_TRIES = 15
_PASSING = "the server rejected our request due to an error in our request"
"""The only failure after which the request is sent again."""

_NAME_LIMIT = 63
_CACHES = ("none", "writethrough", "writeback")


@click.command()
@click.argument("name", metavar="(VMI)")
@click.option("--volume-name", required=True, help="The DataVolume or PersistentVolumeClaim to add.")
@click.option("--disk-name", default="", help="The disk's name in the machine; the volume's by default.")
@click.option("--disk-type", default="disk", help="disk or lun.")
@click.option("--bus", default="scsi", help="The disk's bus: scsi or virtio; scsi for LUNs.")
@click.option(
    "--serial", default="", help="The serial number that the guest sees; the disk's name by default."
)
@click.option("--cache", default="", help="The cache mode: none, writethrough or writeback.")
@click.option("--persist", is_flag=True, help="Kept for older scripts: volumes of a VM are always kept.")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def addvolume(
    client: Client,
    connection: Connection,
    name: str,
    volume_name: str,
    persist: bool,
    dry_run: bool,
    **wishes: str,
) -> None:
    """Plug a claim or a DataVolume into a running guest."""
    del persist
    source = await _source(client, connection.namespace, volume_name)
    disk = _disk(volume_name, **wishes)
    body = {"name": disk["name"], "disk": disk, "volumeSource": source, **dry_run_body(dry_run)}
    await _change(client, connection, name, "addvolume", body, "adding")
    click.echo(f"Successfully submitted add volume request to VM {name} for volume {volume_name}")


@click.command()
@click.argument("name", metavar="(VMI)")
@click.option("--volume-name", required=True, help="The volume, or its DataVolume or claim, to remove.")
@click.option("--persist", is_flag=True, help="Kept for older scripts: a VM loses the volume for good.")
@click.option("--dry-run", is_flag=True, help="Do not change anything on the server.")
@connected
async def removevolume(
    client: Client, connection: Connection, name: str, volume_name: str, persist: bool, dry_run: bool
) -> None:
    """Unplug a volume from a running guest."""
    del persist
    body = {"name": volume_name, **dry_run_body(dry_run)}
    await _change(client, connection, name, "removevolume", body, "removing")
    click.echo(f"Successfully submitted remove volume request to VM {name} for volume {volume_name}")


def _disk(volume: str, *, disk_name: str, disk_type: str, bus: str, serial: str, cache: str) -> JsonObject:
    """The disk that is asked for. Raises click.ClickException."""
    name = disk_name or volume
    if len(name) > _NAME_LIMIT:
        raise click.ClickException(f"Invalid disk name {name}, must not exceed {_NAME_LIMIT} characters")
    if disk_type == "lun" and bus != "scsi":
        raise click.ClickException(f"Invalid bus type '{bus}' for LUN disk. Only 'scsi' bus is supported.")
    if disk_type == "disk" and bus not in ("scsi", "virtio"):
        text = f"Invalid bus type '{bus}' for disk. Only 'scsi' and 'virtio' are supported."
        raise click.ClickException(text)
    if disk_type not in ("disk", "lun"):
        raise click.ClickException(f"Invalid disk type '{disk_type}'. Only LUN and Disk are supported.")
    disk: JsonObject = {"name": name, disk_type: {"bus": bus}, "serial": serial or name}
    if cache:
        if cache not in _CACHES:
            raise _failure(f"invalid cache value {cache}")
        disk["cache"] = cache
    return disk


async def _source(client: Client, namespace: str, volume: str) -> JsonObject:
    """What stands behind the volume. Raises click.ClickException."""
    if await _exists(client, kinds.DATA_VOLUMES, namespace, volume):
        return {"dataVolume": {"name": volume, "hotpluggable": True}}
    if await _exists(client, resources.PERSISTENT_VOLUME_CLAIMS, namespace, volume):
        return {"persistentVolumeClaim": {"claimName": volume, "hotpluggable": True}}
    raise _failure(f"Volume {volume} is not a DataVolume or PersistentVolumeClaim")


async def _exists(client: Client, kind: ResourceType, namespace: str, name: str) -> bool:
    try:
        await client.get(kind, name, namespace)
    except StatusError as error:
        if is_not_found(error):
            return False
        raise _failure(error.message) from error
    return True


async def _change(
    client: Client, connection: Connection, name: str, action: str, body: dict[str, Any], doing: str
) -> None:
    """Send the request to the VM or, where there is none, to the instance. Raises click.ClickException."""
    for _ in range(_TRIES):
        try:
            await _put(client, connection, name, action, body)
        except StatusError as error:
            if error.message != _PASSING:
                raise click.ClickException(f"error {doing} volume, {error.message}") from error
        else:
            return
    raise click.ClickException(f"error {doing} volume after {_TRIES} retries")


async def _put(client: Client, connection: Connection, name: str, action: str, body: dict[str, Any]) -> None:
    try:
        await client.request("PUT", connection.subresource("virtualmachines", name, action), body=body)
    except StatusError as error:
        if not is_not_found(error):
            raise
        path = connection.subresource("virtualmachineinstances", name, action)
        await client.request("PUT", path, body=body)


def _failure(text: str) -> click.ClickException:
    return click.ClickException(f"error adding volume, {text}")


COMMANDS = {"addvolume": addvolume, "removevolume": removevolume}
