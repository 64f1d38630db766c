"""Rules on disks, and on how disks and volumes belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kubecore.objects import names
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.features import is_on
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume, is_disk_claim
from virtplane.serving.responses import NOT_SUPPORTED, REQUIRED, Cause

PCI_ADDRESS = re.compile(r"^[\da-fA-F]{4}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7]$")
_SERIAL = re.compile(r"^[A-Za-z0-9_.+-]+$")
_MAX_SERIAL = 256
_BUSES = ("virtio", "scsi", "sata", "usb")
_RESERVED = (paths.SHARE_DIR, paths.LIBVIRT_RUNTIME_DIR)
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 2097152


def _targets(disk: Disk) -> list[str]:
    targets = {"disk": disk.disk, "lun": disk.lun, "cdrom": disk.cdrom}
    return [name for name, target in targets.items() if target is not None]


def target_of(disk: Disk) -> str:
    """The target of a disk: disk, lun or cdrom; empty if none is set."""
    return next(iter(_targets(disk)), "")


def bus_of(disk: Disk) -> str:
    """The bus of the disk; empty if none is set."""
    target = disk.disk or disk.lun or disk.cdrom
    return (target.bus or "") if target is not None else ""


def disks(field: str, entries: Sequence[Disk]) -> Iterator[Cause]:
    """Each disk by itself. `field` is the path of the list."""
    first: dict[str, int] = {}
    for index, disk in enumerate(entries):
        if disk.name in first:
            yield Cause(
                f"{field}[{index}] and {field}[{first[disk.name]}] must not have the same Name.",
                f"{field}[{index}].name",
            )
        first.setdefault(disk.name, index)
        yield from _disk(field, index, disk)


def _disk(field: str, index: int, disk: Disk) -> Iterator[Cause]:
    own = f"{field}[{index}]"
    twice = f"{field}.domain.devices.disks"
    bus = bus_of(disk)
    for problem in names.is_dns1123_label(disk.name):
        yield Cause(problem, f"{twice}[{index}].name")
    if len(_targets(disk)) > 1:
        yield Cause(f"{own} can only have a single target type defined", own)
    address = disk.disk.pci_address if disk.disk is not None else None
    if address:
        where = f"{twice}.disk[{index}]"
        if bus != "virtio":
            yield Cause(
                f"disk {where}.name - setting a PCI address is only possible with bus type virtio.",
                f"{where}.pciAddress",
            )
        if not PCI_ADDRESS.match(address):
            yield Cause(f"disk {where}.name has malformed PCI address ({address}).", f"{where}.pciAddress")
    if disk.boot_order is not None and disk.boot_order < 1:
        yield Cause(f"{own} must have a boot order > 0, if supplied", f"{own}.bootOrder")
    yield from _bus(own, f"{twice}[{index}]", disk, bus)
    yield from _texts(field, index, disk)
    yield from _block_size(own, disk)


def _bus(own: str, twice: str, disk: Disk, bus: str) -> Iterator[Cause]:
    target = target_of(disk)
    if bus:
        path = f"{own}.{target}.bus"
        if bus == "ide":
            yield Cause("IDE bus is not supported", path)
        elif bus not in _BUSES:
            listed = " ".join(_BUSES)
            yield Cause(f"{own} is set with an unrecognized bus {bus}, must be one of: [{listed}]", path)
        elif target == "cdrom" and bus == "virtio":
            yield Cause("Bus type virtio is invalid for CD-ROM device", path)
        elif target == "disk" and bus == "sata" and disk.disk is not None and disk.disk.readonly:
            yield Cause("sata hard-disks do not support read-only.", path)
    if disk.dedicated_io_thread and bus not in ("", "virtio"):
        yield Cause(f"IOThreads are not supported for disks on a {bus} bus", twice, NOT_SUPPORTED)


def _texts(field: str, index: int, disk: Disk) -> Iterator[Cause]:
    own = f"{field}[{index}]"
    serial = disk.serial or ""
    if serial and not _SERIAL.match(serial):
        yield Cause(
            f"{own} must be made up of the following characters [A-Za-z0-9_.+-], if specified",
            f"{own}.serial",
        )
    if len(serial) > _MAX_SERIAL:
        yield Cause(
            f"{own} must be less than or equal to {_MAX_SERIAL} in length, if specified", f"{own}.serial"
        )
    if disk.cache not in (None, "", "none", "writethrough", "writeback"):
        yield Cause(f"{own}.cache has invalid value {disk.cache}", f"{own}.cache")
    if disk.io not in (None, "", "native", "threads"):
        yield Cause(
            f"Disk IO mode for {field} is not supported. Supported modes are: native, threads.",
            f"{field}.domain.devices.disks[{index}].io",
            NOT_SUPPORTED,
        )
    if disk.error_policy not in (None, "stop", "ignore", "report", "enospace"):
        yield Cause(f'{own}.errorPolicy has invalid value "{disk.error_policy}"', f"{own}.errorPolicy")


def _block_size(own: str, disk: Disk) -> Iterator[Cause]:
    size, path = disk.block_size, f"{own}.blockSize"
    if size is None or size.custom is None:
        return
    if is_on(size.match_volume):
        yield Cause("Block size matching can't be enabled together with a custom value", path)
        return
    logical, physical = size.custom.logical or 0, size.custom.physical or 0
    if logical > physical:
        yield Cause(
            f"Logical size {logical} must be the same or less than the physical size of {physical}",
            f"{path}.custom.logical",
        )
        return
    if bus_of(disk) == "sata" and logical != _SMALLEST_BLOCK:
        yield Cause(
            f"Logical size {logical} must be {_SMALLEST_BLOCK} for SATA devices", f"{path}.custom.logical"
        )
        return
    granularity = size.custom.discard_granularity
    if granularity is not None and logical and granularity % logical:
        yield Cause(
            f"Discard granularity {granularity} must be multiples of logical size {logical}",
            f"{path}.custom.discardGranularity",
        )
        return
    for key, value in (("logical", logical), ("physical", physical)):
        problem = ""
        if value < _SMALLEST_BLOCK:
            problem = f"less than the supported minimum size of {_SMALLEST_BLOCK}"
        elif value > _LARGEST_BLOCK:
            problem = f"greater than the supported maximum size of {_LARGEST_BLOCK}"
        elif value & (value - 1):
            problem = "not a power of 2"
        if problem:
            yield Cause(f"Provided size of {value} is {problem}", f"{path}.custom.{key}")


def boot_order_and_volumes(
    path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig
) -> Iterator[Cause]:
    """Boot orders are unique over disks and cards, and every disk has the volume that it needs."""
    volumes = {volume.name: volume for volume in spec.volumes}
    taken: set[int] = set()
    for index, disk in enumerate(spec.domain.devices.disks):
        field = f"{path}.domain.devices.disks[{index}]"
        yield from _volume_of(field, disk, volumes.get(disk.name), config)
        order = disk.boot_order
        if order is not None:
            if order in taken:
                yield Cause(
                    f"Boot order for {field}.bootOrder already set for a different device.",
                    f"{field}.bootOrder",
                )
            taken.add(order)
    for index, interface in enumerate(spec.domain.devices.interfaces):
        order = interface.boot_order
        if order is None:
            continue
        field = f"{path}[{index}]"
        if order < 1:
            yield Cause(f"{field} must have a boot order > 0, if supplied", f"{field}.bootOrder")
        elif order in taken:
            where = f"{path}.domain.devices.interfaces[{index}].bootOrder"
            yield Cause(f"Boot order for {where} already set for a different device.", where)
        taken.add(order)


def _volume_of(field: str, disk: Disk, volume: Volume | None, config: ClusterConfig) -> Iterator[Cause]:
    target = target_of(disk)
    if volume is None:
        if target != "cdrom":
            yield Cause(f"{field}.Name '{disk.name}' not found.", f"{field}.name")
        elif not config.gate("DeclarativeHotplugVolumes"):
            yield Cause(
                "DeclarativeHotplugVolumes feature gate not enabled, cannot define an empty CD-ROM disk",
                f"{field}.name",
            )
        return
    if target == "lun" and not is_disk_claim(volume):
        yield Cause(
            f"{field}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume.", f"{field}.lun"
        )
    if volume.downward_metrics is not None:
        if target != "disk":
            yield Cause(
                f"DownwardMetrics volume must be mapped to a disk, but disk is not set on {field}.disk.",
                f"{field}.disk",
                REQUIRED,
            )
        elif bus_of(disk) not in ("", "virtio"):
            yield Cause(
                "DownwardMetrics volume must be mapped to virtio bus,"
                f" but {field}.disk.bus is set to {bus_of(disk)}",
                f"{field}.disk.bus",
            )


def every_volume_is_used(spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Each volume of an instance shows up as a disk or a file system."""
    disk_names = {disk.name for disk in spec.domain.devices.disks}
    filesystem_names = {entry.name for entry in spec.domain.devices.filesystems}
    for index, volume in enumerate(spec.volumes):
        name, where = volume.name, f"spec.domain.volumes[{index}]"
        if volume.memory_dump is not None:
            continue
        if name not in disk_names | filesystem_names:
            yield Cause(f"{where}.name '{name}' not found.", f"{where}.name")
        if volume.container_path is None:
            continue
        if name in disk_names:
            yield Cause(f"ContainerPath volume '{name}' must be mapped to a filesystem, not a disk", where)
        if name not in filesystem_names:
            yield Cause(
                f"ContainerPath volume '{name}' must have a matching filesystem defined"
                " in spec.domain.devices.filesystems",
                where,
            )
        path = volume.container_path.path
        prefix = next((each for each in _RESERVED if path.startswith(each)), "")
        if prefix:
            yield Cause(
                f"ContainerPath volume '{name}' uses reserved path prefix '{prefix}'",
                f"{where}.containerPath.path",
            )
