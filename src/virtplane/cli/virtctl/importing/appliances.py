"""Appliances (OVA): a tar with a descriptor (OVF) and disks, written by anyone.

Nothing is unpacked: the descriptor is read within bounds, disks are parts of the archive. Names in it are
only compared with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from lxml import etree

from virtplane.cli.virtctl.contents import Content
from virtplane.cli.virtctl.documents import printable
from virtplane.storage.cdi.importer.archives import TarEntries
from virtplane.storage.cdi.importer.outcome import ImportFailed

_BLOCK = 512
_ENTRIES = 1000
_DESCRIPTOR_BYTES = 4 << 20
_DISKS = 64
_CPUS = 1024
_MEMORY_MIB = 64 << 20
_PIECE_BYTES = 64 << 10

_CPU, _MEMORY, _IDE, _SCSI, _NETWORK, _DISK, _SATA = "3", "4", "5", "6", "10", "17", "20"
"""Types of virtual hardware (CIM_ResourceAllocationSettingData)."""
_UNITS = {"byte": 1, "bytes": 1, "kilobytes": 1 << 10, "megabytes": 1 << 20, "gigabytes": 1 << 30}
_POWER = re.compile(r"byte\s*\*\s*(2|10)\s*\^\s*(\d{1,2})", re.IGNORECASE)
_REFERENCE = re.compile(r"(?:ovf:)?/(disk|file)/(.+)")
_TEXT_BYTES = 256
_ITEMS = ("Item", "StorageItem", "EthernetPortItem")


@dataclass(frozen=True, slots=True)
class ApplianceDisk:
    """A disk: what the archive has of it (None: an empty one), and the size that the descriptor says."""

    name: str
    content: Content | None
    capacity_bytes: int | None


@dataclass(frozen=True, slots=True)
class Appliance:
    """The machine in an archive, as its descriptor says; None for what it does not say."""

    name: str
    cpus: int | None
    memory_mib: int | None
    is_efi: bool
    is_secure_boot: bool
    networks: int
    disks: tuple[ApplianceDisk, ...]
    configuration: str = ""
    """Which of its configurations this is; empty where it has one."""


class BadAppliance(click.ClickException):
    """The archive is no appliance, or one that cannot be imported."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(printable(f"{path}: {why}"))


class _Invalid(Exception):
    """What is wrong with a descriptor."""


async def read_appliance(archive: Content) -> Appliance:
    """The machine in an archive. Raises BadAppliance."""
    try:
        files = await _files(archive)
        names = [name for name in files if name.lower().endswith(".ovf")]
        if len(names) != 1:
            found = "no descriptor (.ovf)" if not names else "several descriptors (.ovf)"
            raise _Invalid(f"the archive has {found}")
        content = files[names[0]]
        if content.size > _DESCRIPTOR_BYTES:
            raise _Invalid("the descriptor is too long")
        return _machine(_parsed(content.read(0, content.size)), files)
    except (_Invalid, ImportFailed) as error:
        raise BadAppliance(archive.path, str(error)) from error


class _FileReader:
    """A file from an offset, in pieces."""

    def __init__(self, archive: Content, position: int) -> None:
        self._archive, self._position = archive, position

    async def read(self) -> bytes:
        piece = self._archive.read(self._position, _PIECE_BYTES)
        self._position += len(piece)
        return piece

    async def close(self) -> None:
        return None


async def _files(archive: Content) -> dict[str, Content]:
    """The regular files of a tar by name; their content is not read. Raises _Invalid, ImportFailed."""
    found: dict[str, Content] = {}
    position = 0
    for _ in range(_ENTRIES):
        entry = await TarEntries(_FileReader(archive, position)).next()
        if entry is None:
            return found
        name = entry.name.removeprefix("./")
        begin = position + entry.offset
        if entry.size < 0 or begin + entry.size > archive.size:
            raise _Invalid(f"the archive ends within {_shown(name)}")
        if name in found:
            raise _Invalid(f"the archive has {_shown(name)} twice")
        found[name] = Content(archive.path, entry.size, archive.offset + begin)
        position = begin + -(-entry.size // _BLOCK) * _BLOCK
    raise _Invalid("the archive has too many files")


def _parsed(text: bytes) -> etree._Element:
    """The descriptor's elements: without entities, which could be many, or lead elsewhere."""
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text or b"\0" in text:
        raise _Invalid("the descriptor has a document type, or an encoding other than UTF-8")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True,
        remove_pis=True,
    )  # fmt: skip
    try:
        root = etree.fromstring(text, parser)
    except etree.XMLSyntaxError as error:
        raise _Invalid(f"the descriptor is no XML: {error}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise _Invalid("the descriptor has a document type")
    return root


def _machine(root: etree._Element, files: Mapping[str, Content]) -> Appliance:
    systems = list(_all(root, "VirtualSystem"))
    if len(systems) != 1:
        raise _Invalid(f"the descriptor has {len(systems)} machines; one can be imported")
    system = systems[0]
    hardware = next(_all(system, "VirtualHardwareSection"), None)
    if hardware is None:
        raise _Invalid("the descriptor has no virtual hardware")
    choices = [
        each for section in _all(root, "DeploymentOptionSection") for each in _all(section, "Configuration")
    ]
    defaults = [each for each in choices if _attribute(each, "default") == "true"]
    configuration = _attribute([*defaults, *choices][0], "id") if choices else ""
    items = _items(hardware, configuration)
    return Appliance(
        name=(_text(system, "Name") or _attribute(system, "id"))[:_TEXT_BYTES],
        cpus=_cpus(items),
        memory_mib=_memory_mib(items),
        is_efi=_is_efi(system),
        is_secure_boot=_configured(system, "bootOptions.efiSecureBootEnabled") == "true",
        networks=sum(item.get("ResourceType") == _NETWORK for item in items),
        disks=_disks(root, items, files),
        configuration=configuration,
    )


def _items(hardware: etree._Element, configuration: str) -> list[dict[str, str]]:
    """The pieces of virtual hardware; one for a configuration replaces that of its identifier for all."""
    common: list[dict[str, str]] = []
    special: list[dict[str, str]] = []
    for name in _ITEMS:
        for element in _all(hardware, name):
            configurations = _attribute(element, "configuration").split()
            if configurations and configuration not in configurations:
                continue
            (special if configurations else common).append(_fields(element))
    replaced = {item.get("InstanceID") for item in special} - {None}
    return [*(item for item in common if item.get("InstanceID") not in replaced), *special]


def _disks(
    root: etree._Element, items: list[dict[str, str]], files: Mapping[str, Content]
) -> tuple[ApplianceDisk, ...]:
    """The disks of the hardware in the order of their controllers and places there, the order of booting."""
    known = {_attribute(disk, "diskId"): disk for disk in _all(root, "Disk")}
    sources = {_attribute(file, "id"): file for file in _all(root, "File")}
    drives = [item for item in items if item.get("ResourceType") == _DISK]
    controllers = {
        item.get("InstanceID", ""): (item.get("ResourceType", ""), _order(item.get("Address", "")))
        for item in items
        if item.get("ResourceType") in (_IDE, _SCSI, _SATA)
    }
    drives.sort(
        key=lambda item: (
            controllers.get(item.get("Parent", ""), ("", 0)), _order(item.get("AddressOnParent", ""))
        )
    )  # fmt: skip
    if not 0 < len(drives) <= _DISKS:
        raise _Invalid(f"the machine has {len(drives)} disks; 1 to {_DISKS} can be imported")
    return tuple(_disk(item.get("HostResource", ""), known, sources, files) for item in drives)


def _disk(
    resource: str,
    known: Mapping[str, etree._Element],
    sources: Mapping[str, etree._Element],
    files: Mapping[str, Content],
) -> ApplianceDisk:
    matched = _REFERENCE.fullmatch(resource)
    if matched is None:
        raise _Invalid(f"a drive has the source {_shown(resource)}, which is no disk")
    kind, name = matched.groups()
    if kind == "file":
        return ApplianceDisk(name, _content(name, sources, files), None)
    disk = known.get(name)
    if disk is None:
        raise _Invalid(f"there is no disk {_shown(name)}")
    if _attribute(disk, "parentRef"):
        raise _Invalid(f"the disk {_shown(name)} depends on another one")
    file = _attribute(disk, "fileRef")
    content = _content(file, sources, files) if file else None
    capacity = _capacity(disk)
    if content is None and capacity is None:
        raise _Invalid(f"the empty disk {_shown(name)} has no capacity")
    return ApplianceDisk(name, content, capacity)


def _content(name: str, sources: Mapping[str, etree._Element], files: Mapping[str, Content]) -> Content:
    file = sources.get(name)
    if file is None:
        raise _Invalid(f"there is no file {_shown(name)}")
    if _attribute(file, "chunkSize"):
        raise _Invalid(f"the file {_shown(name)} is in several parts")
    if _attribute(file, "compression").lower() not in ("", "identity", "gzip"):
        raise _Invalid(f"the compression of the file {_shown(name)} is not supported")
    path = _attribute(file, "href")
    if path not in files:
        raise _Invalid(f"the file {_shown(path)} is not in the archive")
    return files[path]


def _capacity(disk: etree._Element) -> int | None:
    text, unit = _attribute(disk, "capacity"), _attribute(disk, "capacityAllocationUnits")
    if not re.fullmatch(r"\d{1,18}", text):
        return None
    return int(text) * _factor(unit, 1)


def _cpus(items: list[dict[str, str]]) -> int | None:
    found = [item for item in items if item.get("ResourceType") == _CPU]
    count = sum(_whole(item.get("VirtualQuantity", "")) for item in found)
    if count > _CPUS:
        raise _Invalid(f"the machine has {count} processors, more than {_CPUS}")
    return count or None


def _memory_mib(items: list[dict[str, str]]) -> int | None:
    found = [item for item in items if item.get("ResourceType") == _MEMORY]
    size = sum(
        _whole(item.get("VirtualQuantity", "")) * _factor(item.get("AllocationUnits", ""), 1 << 20)
        for item in found
    )
    mib = -(-size >> 20) if size else 0
    if mib > _MEMORY_MIB:
        raise _Invalid(f"the machine has {mib} MiB of memory, more than {_MEMORY_MIB}")
    return mib or None


def _factor(unit: str, default: int) -> int:
    """The bytes of a unit. Raises _Invalid."""
    if not unit:
        return default
    matched = _POWER.fullmatch(unit.strip())
    if matched is not None:
        base, exponent = int(matched[1]), int(matched[2])
        return int(base**exponent)
    known = _UNITS.get(unit.strip().lower())
    if known is None:
        raise _Invalid(f"the unit {_shown(unit)} is not known")
    return known


def _is_efi(system: etree._Element) -> bool:
    firmware = next((_attribute(each, "type") for each in _all(system, "Firmware")), "")
    return "efi" in (_configured(system, "firmware").lower(), firmware.lower())


def _configured(system: etree._Element, key: str) -> str:
    """A setting of VMware's."""
    return next(
        (_attribute(each, "value") for each in _all(system, "Config") if _attribute(each, "key") == key), ""
    )


def _all(parent: etree._Element, name: str) -> Iterator[etree._Element]:
    """Elements below `parent`, in any namespace: versions of the format differ in theirs."""
    return parent.iterdescendants(f"{{*}}{name}")


def _fields(item: etree._Element) -> dict[str, str]:
    return {etree.QName(child).localname: (child.text or "").strip() for child in item.iterchildren("{*}*")}


def _text(parent: etree._Element, name: str) -> str:
    found = next(parent.iterchildren(f"{{*}}{name}"), None)
    return (found.text or "").strip() if found is not None else ""


def _attribute(element: etree._Element, name: str) -> str:
    for key, value in element.attrib.items():
        if etree.QName(str(key)).localname == name:
            return str(value)
    return ""


def _whole(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,12}", text) else 0


def _order(text: str) -> int:
    return _whole(text)


def _shown(text: str) -> str:
    """A name out of the archive, fit for a terminal."""
    kept = "".join(char for char in text[:_TEXT_BYTES] if char.isprintable())
    return f'"{kept}"'
