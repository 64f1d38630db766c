"""``import``: a VirtualMachine from a disk image, an appliance (OVA) or a URL, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from virtplane.api import resources
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.contents import whole
from virtplane.cli.virtctl.creating.machine import named
from virtplane.cli.virtctl.importing import plans
from virtplane.cli.virtctl.importing.appliances import read_appliance
from virtplane.cli.virtctl.importing.diskimages import inspect
from virtplane.cli.virtctl.importing.plans import Disk, Plan, Wishes
from virtplane.cli.virtctl.params import FlagError, given_flags, one_of, quantity, refuse_together
from virtplane.cli.virtctl.uploading import uploadclaims
from virtplane.cli.virtctl.uploading.imageupload import Transfer, deliver, transfer_of, transfer_options
from virtplane.cli.virtctl.uploading.uploadclaims import Target, Wanted
from virtplane.storage.cdi.importer.formats import Container

_GROUPS = (("instancetype", "memory"), ("instancetype", "cpu"))
_VOLUME_MODES = ("block", "filesystem")


@click.command(name="import")
@click.argument("source", metavar="FILE|URL")
@click.option("--name", default="", help="The VM's name; else that of the file or appliance.")
@click.option("--size", default="", help="The disk's size; needed for URLs and compressed files.")
@click.option(
    "--cpu", type=click.IntRange(0, 1024), default=0, help="Processors; else the appliance's, or 1."
)
@click.option("--memory", default="", help="Memory; else the appliance's, or 2Gi.")
@click.option("--instancetype", default="", help="The instance type: [kind/]name.")
@click.option("--preference", default="", help="The preference: [kind/]name.")
@click.option("--firmware", default="", help="bios or efi; else the appliance's, or bios.")
@click.option("--disk-bus", default="", help="virtio, sata or scsi; else virtio for qcow2 and raw, and sata.")
@click.option(
    "--nic-model", default="", help="virtio, e1000e, ...; else virtio for qcow2 and raw, and e1000e."
)
@click.option("--storage-class", default="", help="The storage class of the disks.")
@click.option("--access-mode", default="", help="The access mode of the disks.")
@click.option("--volume-mode", default="", help="block or filesystem; else what the storage profile says.")
@click.option(
    "--no-force-bind", is_flag=True, help="Bind the disks when the VM is started first (URLs only)."
)
@click.option("--secret-ref", default="", help="The secret with the credentials for the URL.")
@click.option("--cert-configmap", default="", help="The ConfigMap with the authorities for the URL.")
@click.option("--run", is_flag=True, help="Run the VM, as soon as its disks are there.")
@transfer_options
@connected
async def import_vm(client: Client, connection: Connection, source: str, **given: Any) -> None:
    """Make a virtual machine from a disk image (qcow2, raw, VMDK, VHDX, ...), an OVA, or a URL."""
    for group in _GROUPS:
        refuse_together(group, given_flags())
    wishes = _wishes(given)
    plan = await _plan(source, wishes, given)
    document = plans.machine(plan, wishes, connection.namespace)
    await uploadclaims.check_class(client, given["storage_class"])
    await _create(client, document)
    for note in plan.notes:
        click.echo(note)
    own = f"{plan.name} -n {connection.namespace}"
    transfer = transfer_of(given, force_bind=not given["no_force_bind"])
    try:
        for number, disk in enumerate(plan.disks):
            name = plans.disk_name(plan, number)
            await _fill(client, Target(connection.namespace, name), disk, transfer)
    except (click.ClickException, ConnectionFailed, StatusError):
        click.echo(f"The import is not complete. Repeat it, or remove it: kubectl delete vm {own}", err=True)
        raise
    program = click.get_current_context().find_root().info_name
    how = "starts" if wishes.runs else f"is there; start it with: {program} start {own}"
    click.echo(f"VirtualMachine {connection.namespace}/{plan.name} {how}")


def _wishes(given: dict[str, Any]) -> Wishes:
    """The flags. Raises click.ClickException."""
    matchers = {kind: named(kind, given[kind]) for kind in ("instancetype", "preference")}
    mode, firmware = given["volume_mode"], given["firmware"]
    storage = Wanted(
        "",
        given["storage_class"],
        given["access_mode"],
        one_of("volume-mode", "volume mode", mode, _VOLUME_MODES) if mode else "",
        not given["no_force_bind"],
    )
    return Wishes(
        given["name"],
        _amount("size", given["size"]),
        given["cpu"] or 0,
        _amount("memory", given["memory"]),
        one_of("firmware", "firmware", firmware, ("bios", "efi")) if firmware else "",
        given["disk_bus"],
        given["nic_model"],
        given["run"],
        {kind: matcher for kind, matcher in matchers.items() if matcher},
        storage,
    )


def _amount(flag: str, text: str) -> str:
    try:
        return quantity(text) if text else ""
    except ValueError as error:
        raise FlagError(flag, str(error)) from error


async def _plan(source: str, wishes: Wishes, given: dict[str, Any]) -> Plan:
    if plans.URL.match(source):
        return plans.of_url(source, wishes, given["secret_ref"], given["cert_configmap"])
    if given["secret_ref"] or given["cert_configmap"]:
        raise click.ClickException("--secret-ref and --cert-configmap are for URLs")
    content = whole(Path(source))
    if inspect(content, source).kind is Container.TAR:
        return plans.of_appliance(await read_appliance(content), source, wishes)
    return plans.of_image(content, wishes)


async def _create(client: Client, document: JsonObject) -> None:
    """Create the VM; one that an earlier, incomplete import of the same made is taken up.

    Raises click.ClickException where the VM, or what its disks would be, is another's; StatusError.
    """
    namespace, own = meta.namespace(document), f"{meta.namespace(document)}/{meta.name(document)}"
    found = await uploadclaims.get(client, resources.VIRTUAL_MACHINES, meta.name(document), namespace)
    if found is not None:
        if _disks(found) != _disks(document):
            text = f"VirtualMachine {own} already exists, with other disks: choose another --name"
            raise click.ClickException(text)
        click.echo(f"VirtualMachine {own} exists: its import is continued")
        return
    for name, _, _ in _disks(document):
        # A VM would take a DataVolume or claim of the name for its own, with whatever it contains.
        for kind in (resources.DATA_VOLUMES, PERSISTENT_VOLUME_CLAIMS):
            if await uploadclaims.get(client, kind, name, namespace) is not None:
                text = f"{kind.kind} {namespace}/{name} already exists: choose another --name"
                raise click.ClickException(text)
    await client.create(resources.VIRTUAL_MACHINES, document)
    click.echo(f"VirtualMachine {own} created")


def _disks(document: JsonObject) -> list[tuple[str, JsonObject, str]]:
    """Names, sources and sizes of the disks."""
    return [
        (
            get_str(template, "metadata", "name"),
            get_object(template, "spec", "source"),
            get_str(template, "spec", "storage", "resources", "requests", "storage"),
        )
        for template in get_list(document, "spec", "dataVolumeTemplates")
    ]


async def _fill(client: Client, target: Target, disk: Disk, transfer: Transfer) -> None:
    """Fill a disk, or wait until it is filled. Raises click.ClickException, StatusError."""
    if await uploadclaims.is_filled(client, target):
        click.echo(f"Disk {target.name} is filled")
    elif disk.content is not None:
        restarts = await deliver(client, target, disk.content, transfer)
        click.echo(f"Uploaded disk {target.name}, waiting for processing to complete")
        await uploadclaims.wait_until_processed(client, target, restarts)
    elif transfer.force_bind:
        await uploadclaims.wait_until_imported(client, target)


COMMANDS = {"import": import_vm}
