"""What ``import`` makes: pure decisions from an image, an appliance or a URL, and the flags, to a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import click

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from virtplane.api import cdi_labels
from virtplane.cli.virtctl.contents import Content
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.importing.appliances import Appliance, ApplianceDisk
from virtplane.cli.virtctl.importing.diskimages import BadImage, DiskImage, inspect, is_compressed
from virtplane.cli.virtctl.params import random_ending
from virtplane.cli.virtctl.progress import amount
from virtplane.cli.virtctl.uploading.uploadclaims import Wanted, storage_spec
from virtplane.storage.cdi.importer.formats import Container, DiskFormat

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MIB = 1 << 20
_LARGEST_BYTES = 1 << 50
_LONGEST_NAME = 50
"""So that the names of disks fit labels too."""
_OWN_FORMATS = (DiskFormat.RAW, DiskFormat.QCOW2)
"""Formats of images for QEMU, which have virtio's drivers; guests of other hypervisors may not."""
_FOREIGN_ENDINGS = (".vmdk", ".vhd", ".vhdx", ".vdi")
_ENDINGS = (".gz", ".xz", ".zst", ".bz2", ".qcow2", ".img", ".raw", ".ova", ".iso", *_FOREIGN_ENDINGS)


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk to make: how large, from what; `content` is what is uploaded into it."""

    size: str
    source: JsonObject
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The machine to make. `is_foreign`: it comes from another hypervisor."""

    name: str
    disks: tuple[Disk, ...]
    is_foreign: bool = False
    cpus: int | None = None
    memory: str = ""
    is_efi: bool = False
    is_secure_boot: bool = False
    notes: tuple[str, ...] = ()
    """What its user should know of the import."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the flags say of the machine; empty where they say nothing."""

    name: str = ""
    size: str = ""
    cpus: int = 0
    memory: str = ""
    firmware: str = ""
    disk_bus: str = ""
    nic_model: str = ""
    runs: bool = False
    matchers: Mapping[str, JsonObject] = field(default_factory=dict)
    """``instancetype`` and ``preference`` as they are in a VM."""
    storage: Wanted = field(default_factory=lambda: Wanted(""))


def of_image(content: Content, wishes: Wishes) -> Plan:
    """A machine with one disk, from an image. Raises click.ClickException."""
    label = str(content.path)
    image = inspect(content, label)
    disk = Disk(_size_of_image(label, image, None, wishes.size), {"upload": {}}, content)
    is_foreign = isinstance(image.kind, DiskFormat) and image.kind not in _OWN_FORMATS
    return Plan(wishes.name or name_from(content.path.name), (disk,), is_foreign)


def of_appliance(appliance: Appliance, path: str, wishes: Wishes) -> Plan:
    """The machine of an appliance. Raises click.ClickException."""
    if wishes.size and len(appliance.disks) > 1:
        text = f"{path}: the appliance has {len(appliance.disks)} disks, so --size cannot be given"
        raise click.ClickException(text)
    notes = []
    if appliance.networks > 1:
        notes.append(f"The appliance has {appliance.networks} network interfaces; its machine has one.")
    if appliance.configuration:
        notes.append(f"The appliance has configurations; this is {printable(appliance.configuration[:64])}.")
    return Plan(
        wishes.name or name_from(appliance.name),
        tuple(_disk_of_appliance(disk, path, wishes) for disk in appliance.disks),
        True,
        appliance.cpus,
        Quantity.parse(f"{appliance.memory_mib}Mi").canonical() if appliance.memory_mib else "",
        appliance.is_efi,
        appliance.is_secure_boot,
        tuple(notes),
    )


def _disk_of_appliance(disk: ApplianceDisk, path: str, wishes: Wishes) -> Disk:
    label = f"{path}: disk {disk.name}"
    if disk.content is None:
        return Disk(wishes.size or _quantity(label, disk.capacity_bytes or 0), {"blank": {}})
    image = inspect(disk.content, label)
    return Disk(_size_of_image(label, image, disk.capacity_bytes, wishes.size), {"upload": {}}, disk.content)


def of_url(url: str, wishes: Wishes, secret: str, authorities: str) -> Plan:
    """A machine with one disk that CDI imports from `url`. Raises click.ClickException."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise click.ClickException(f"{url}: {error}") from error
    if parts.username or parts.password:
        text = "the URL has a user or password, which would be readable in the cluster: use --secret-ref"
        raise click.ClickException(text)
    kinds = {"http": "http", "https": "http", "docker": "registry"}
    kind = kinds.get(parts.scheme.lower())
    if kind is None:
        raise click.ClickException(f"unsupported URL {url}: http, https and docker are supported")
    path = PurePosixPath(parts.path)
    if path.suffix.lower() in (".ova", ".ovf"):
        raise click.ClickException(f"{url}: an appliance is imported from a file, so download it first")
    if not wishes.size:
        raise click.ClickException("the size of a disk from a URL must be specified (--size)")
    source = {"url": url}
    if secret:
        source["secretRef"] = secret
    if authorities:
        source["certConfigMap"] = authorities
    is_foreign = any(suffix.lower() in _FOREIGN_ENDINGS for suffix in path.suffixes)
    return Plan(wishes.name or name_from(path.name), (Disk(wishes.size, {kind: source}),), is_foreign)


def _size_of_image(label: str, image: DiskImage, declared: int | None, given: str) -> str:
    """The size of the volume for an image; `declared` counts where the image does not tell."""
    if isinstance(image.kind, Container):
        raise BadImage(label, "an archive is no disk")
    wanted = image.virtual_bytes or declared
    if not given:
        if wanted is None:
            why = "it is compressed" if is_compressed(image) else "its size is not known"
            raise BadImage(label, f"{why}, so the size of its disk must be specified (--size)")
        return _quantity(label, wanted)
    try:
        size = Quantity.parse(given).value
    except ValueError:
        # Whatever else is wrong with it, `storage_spec` tells.
        return given
    if wanted is not None and size < wanted:
        raise BadImage(label, f"its disk has {amount(wanted)} ({wanted} bytes), more than --size {given}")
    return given


def _quantity(label: str, size: int) -> str:
    if not 0 < size <= _LARGEST_BYTES:
        raise BadImage(label, f"a disk of {size} bytes is not possible")
    return Quantity.parse(f"{-(-size // _MIB)}Mi").canonical()


def name_from(text: str) -> str:
    """A name for objects out of a file's name or a title; a random one where nothing is left of it."""
    lowered = text.lower()
    while lowered.endswith(_ENDINGS):
        lowered = lowered[: lowered.rindex(".")]
    name = re.sub(r"[^a-z0-9]+", "-", lowered)[:_LONGEST_NAME].strip("-")
    if not name:
        return f"vm-{random_ending()}"
    # Names of services, which the machine's may become, begin with a letter.
    return name if name[0].isalpha() else f"vm-{name}"


def disk_name(plan: Plan, number: int) -> str:
    """The name of the DataVolume and the claim of a disk, counted from 0."""
    return f"{plan.name}-disk" if number == 0 else f"{plan.name}-disk-{number}"


def machine(plan: Plan, wishes: Wishes, namespace: str) -> JsonObject:
    """The VirtualMachine. Its disks are its own: they go with it. Raises click.ClickException."""
    names = [disk_name(plan, number) for number in range(len(plan.disks))]
    pairs = list(zip(names, plan.disks, strict=True))
    template: JsonObject = {
        "domain": _domain(plan, wishes, names),
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 180,
        "volumes": [{"name": name, "dataVolume": {"name": name}} for name in names],
    }
    spec: JsonObject = {
        "runStrategy": "Always" if wishes.runs else "Halted",
        **wishes.matchers,
        "dataVolumeTemplates": [_data_volume(name, disk, wishes.storage) for name, disk in pairs],
        "template": {"metadata": {}, "spec": template},
    }
    metadata = {"name": plan.name, "namespace": namespace}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec}


def _data_volume(name: str, disk: Disk, storage: Wanted) -> JsonObject:
    wanted = Wanted(disk.size, storage.storage_class, storage.access_mode, storage.volume_mode)
    metadata: JsonObject = {"name": name}
    if storage.force_bind:
        metadata["annotations"] = {cdi_labels.IMMEDIATE_BINDING: ""}
    return {"metadata": metadata, "spec": {"source": disk.source, "storage": storage_spec(wanted)}}


def _domain(plan: Plan, wishes: Wishes, names: list[str]) -> JsonObject:
    """Processors and memory are those of the instance type where there is one, devices of the preference."""
    has_preference = "preference" in wishes.matchers
    bus = wishes.disk_bus or ("" if has_preference else "sata" if plan.is_foreign else "virtio")
    model = wishes.nic_model or ("" if has_preference else "e1000e" if plan.is_foreign else "virtio")
    disks = [
        {"name": name, "bootOrder": number, "disk": {"bus": bus} if bus else {}}
        for number, name in enumerate(names, 1)
    ]
    interface: JsonObject = {"name": "default", "masquerade": {}}
    if model:
        interface["model"] = model
    domain: JsonObject = {"devices": {"disks": disks, "interfaces": [interface]}}
    if "instancetype" not in wishes.matchers:
        domain["cpu"] = {"cores": wishes.cpus or plan.cpus or 1}
        domain["memory"] = {"guest": wishes.memory or plan.memory or "2Gi"}
    if wishes.firmware == "efi" or (plan.is_efi and not wishes.firmware):
        domain["firmware"] = {"bootloader": {"efi": {"secureBoot": plan.is_secure_boot}}}
        if plan.is_secure_boot:
            domain["features"] = {"smm": {"enabled": True}}
    elif wishes.firmware == "bios":
        domain["firmware"] = {"bootloader": {"bios": {}}}
    return domain
