"""``<disk>`` elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtplane.api import paths
from virtplane.api.kubevirt_v1.disks import CDRomTarget, Disk, DiskTarget, LunTarget
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import pci
from virtplane.compute.domain.context import BlockSizes, DiskSource, DomainContext
from virtplane.compute.domain.processor import vcpu_count
from virtplane.compute.domain.xml import Element, alias, element
from virtplane.compute.hotplug import started_disks

_PREFIX = {"virtio": "vd", "sata": "sd", "scsi": "sd", "usb": "sd"}


class MissingSource(Exception):
    """The volume of a disk was not prepared."""

    def __init__(self, disk: str) -> None:
        super().__init__(f"disk {disk} has no prepared volume")
        self.disk = disk


def device_kind(disk: Disk) -> str:
    """``disk``, ``cdrom`` or ``lun``."""
    if disk.cdrom is not None:
        return "cdrom"
    return "lun" if disk.lun is not None else "disk"


def bus_of(disk: Disk) -> str:
    """The bus of a disk; the default is SATA for CD-ROMs, and virtio otherwise."""
    return _target(disk).bus or ("sata" if disk.cdrom is not None else "virtio")


def _target(disk: Disk) -> CDRomTarget | LunTarget | DiskTarget:
    """The target of a volume in the guest; the default is a plain disk."""
    return disk.cdrom or disk.lun or disk.disk or DiskTarget()


def target_names(disks: Sequence[Disk], reported: Mapping[str, str]) -> dict[str, str]:
    """Target device (``vda``) by disk name; names that the status already reports are kept."""
    names: dict[str, str] = {}
    taken = set(reported.values())
    for disk in disks:
        name = disk.name
        if name in reported:
            names[name] = reported[name]
            continue
        prefix = _PREFIX[bus_of(disk)]
        letters = (f"{prefix}{_letters(index)}" for index in range(1024))
        names[name] = next(candidate for candidate in letters if candidate not in taken)
        taken.add(names[name])
    return names


def _letters(index: int) -> str:
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def render_disks(
    vmi: VirtualMachineInstance, context: DomainContext, threads: Mapping[str, int] | None = None
) -> list[Element]:
    """The disks that the guest starts with, in the order of the spec. Raises MissingSource, ValueError.

    `threads` has the numbers of their I/O threads by name.
    """
    disks = started_disks(vmi, context.disks)
    reported = {status.name: status.target for status in vmi.status.volume_status if status.target}
    targets = target_names(disks, reported)
    scsi = [disk.name for disk in disks if bus_of(disk) == "scsi"]
    boots = _boot_orders(vmi, disks)
    threads = threads or {}
    queues = vcpu_count(vmi.spec.domain) if vmi.spec.domain.devices.block_multi_queue else 0
    transitional = bool(vmi.spec.domain.devices.use_virtio_transitional)
    rendered = []
    for disk in disks:
        name = disk.name
        node = render_disk(disk, context.disks.get(name), targets[name], transitional=transitional)
        driver = node.find("driver")
        if driver is not None and name in threads:
            driver.set("iothread", str(threads[name]))
        if driver is not None and queues and bus_of(disk) == "virtio":
            driver.set("queues", str(queues))
        if name in scsi:
            unit = {"type": "drive", "controller": 0, "bus": 0, "target": 0, "unit": scsi.index(name)}
            node.append(element("address", unit))
        if name in boots:
            node.append(element("boot", {"order": boots[name]}))
        rendered.append(node)
    return rendered


def _boot_orders(vmi: VirtualMachineInstance, disks: Sequence[Disk]) -> dict[str, int]:
    """Explicit boot orders; without any, the first disk boots."""
    orders = {disk.name: disk.boot_order for disk in disks if disk.boot_order}
    interfaces = vmi.spec.domain.devices.interfaces
    if not orders and disks and not any(interface.boot_order for interface in interfaces):
        return {disks[0].name: 1}
    return orders


def render_disk(disk: Disk, source: DiskSource | None, target: str, *, transitional: bool) -> Element:
    """The element of one disk; only the drive of a CD-ROM may have no source. Raises MissingSource."""
    kind, bus, shown = device_kind(disk), bus_of(disk), _target(disk)
    if source is None and kind != "cdrom":
        raise MissingSource(disk.name)
    model = None
    if bus == "virtio":
        model = "virtio-transitional" if transitional else "virtio-non-transitional"
    node = element(
        "disk", {"type": "block" if source and source.block else "file", "device": kind, "model": model}
    )
    if source is not None:
        node.append(_driver(disk, source, kind))
        node.append(element("source", {"dev" if source.block else "file": source.path}, _reservations(disk)))
        node.append(_backing(source))
    tray = None
    if disk.cdrom is not None:
        tray = "open" if source is None else disk.cdrom.tray or None
    node.append(element("target", {"dev": target, "bus": bus, "tray": tray}))
    sizes = block_sizes(disk, source)
    if sizes is not None:
        blocks = {"logical_block_size": sizes.logical, "physical_block_size": sizes.physical}
        node.append(element("blockio", blocks))
    if disk.disk is not None and disk.disk.pci_address:
        node.append(pci.address_element(disk.disk.pci_address))
    if disk.serial:
        node.append(element("serial", {}, disk.serial))
    is_read_only = shown.readonly if shown.readonly is not None else kind == "cdrom"
    if is_read_only or (source is not None and source.read_only):
        node.append(element("readonly"))
    if disk.shareable:
        node.append(element("shareable"))
    node.append(alias(disk.name))
    return node


def block_sizes(disk: Disk, source: DiskSource | None) -> BlockSizes | None:
    """The block sizes that the guest sees; None leaves them to QEMU."""
    asked = disk.block_size
    if asked is None:
        return None
    if asked.custom is not None:
        custom = asked.custom
        return BlockSizes(custom.logical or 0, custom.physical or 0, custom.discard_granularity)
    matches = asked.match_volume is not None and asked.match_volume.is_on
    return source.block_sizes if matches and source is not None else None


def _reservations(disk: Disk) -> Element | None:
    """The helper that makes persistent reservations for the guest, which may not itself."""
    if disk.lun is None or not disk.lun.reservation:
        return None
    helper = element("source", {"type": "unix", "path": paths.RESERVATION_HELPER, "mode": "client"})
    return element("reservations", {"managed": "no"}, helper)


def _backing(source: DiskSource) -> Element:
    """The backing chain, always ended explicitly: otherwise libvirt would probe the disk for a backing
    file.
    """
    if not source.backing_path:
        return element("backingStore")
    return element(
        "backingStore",
        {"type": "block" if source.backing_block else "file"},
        element("format", {"type": source.backing_format}),
        element("source", {"dev" if source.backing_block else "file": source.backing_path}),
        element("backingStore"),
    )


def _driver(disk: Disk, source: DiskSource, kind: str) -> Element:
    """Cache mode ``none`` where O_DIRECT works, else ``writethrough``; guests stop on I/O errors.

    Raises ValueError where guests that share a disk would not see what the others write.
    """
    cache = disk.cache or ("none" if source.direct_io or disk.shareable else "writethrough")
    if disk.shareable and cache != "none":
        raise ValueError(f"a sharable disk requires cache = none got: {cache}")
    io = disk.io
    if not io and cache == "none" and (source.block or source.allocated):
        io = "native"
    attributes = {
        "name": "qemu",
        "type": source.format,
        "cache": cache,
        "error_policy": disk.error_policy or "stop",
        "io": io or None,
        "discard": "unmap" if kind != "cdrom" and not source.preallocated else None,
    }
    return element("driver", attributes)
