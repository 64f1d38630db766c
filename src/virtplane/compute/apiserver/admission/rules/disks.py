"""Rules on disks, and on how disks and volumes belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects import names
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.volumes import DISK_CLAIMS
from virtplane.compute.apiserver.admission.response import NOT_SUPPORTED, REQUIRED, Cause

PCI_ADDRESS = re.compile(r"^[\da-fA-F]{4}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7]$")
_SERIAL = re.compile(r"^[A-Za-z0-9_.+-]+$")
_MAX_SERIAL = 256
_BUSES = ("virtio", "scsi", "sata", "usb")
_TARGETS = ("disk", "lun", "cdrom")
_RESERVED = (paths.SHARE_DIR, paths.LIBVIRT_RUNTIME_DIR)
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 2097152


def target_of(disk: JsonObject) -> str:
    """How the volume shows up: disk, lun or cdrom; empty where nothing is said."""
    return next((target for target in _TARGETS if isinstance(disk.get(target), dict)), "")


def bus_of(disk: JsonObject) -> str:
    """The bus that the disk names; empty where it names none."""
    return get_str(disk, target_of(disk), "bus")


def disks(field: str, entries: list[JsonObject]) -> Iterator[Cause]:
    """Each disk by itself. `field` is the path of the list."""
    first: dict[str, int] = {}
    for index, disk in enumerate(entries):
        name = get_str(disk, "name")
        if name in first:
            yield Cause(
                f"{field}[{index}] and {field}[{first[name]}] must not have the same Name.",
                f"{field}[{index}].name",
            )
        first.setdefault(name, index)
        yield from _disk(field, index, disk)


def _disk(field: str, index: int, disk: JsonObject) -> Iterator[Cause]:
    own = f"{field}[{index}]"
    twice = f"{field}.domain.devices.disks"
    bus = bus_of(disk)
    for problem in names.is_dns1123_label(get_str(disk, "name")):
        yield Cause(problem, f"{twice}[{index}].name")
    if sum(1 for target in _TARGETS if isinstance(disk.get(target), dict)) > 1:
        yield Cause(f"{own} can only have a single target type defined", own)
    address = get_str(disk, "disk", "pciAddress")
    if address:
        where = f"{twice}.disk[{index}]"
        if bus != "virtio":
            yield Cause(
                f"disk {where}.name - setting a PCI address is only possible with bus type virtio.",
                f"{where}.pciAddress",
            )
        if not PCI_ADDRESS.match(address):
            yield Cause(f"disk {where}.name has malformed PCI address ({address}).", f"{where}.pciAddress")
    if isinstance(disk.get("bootOrder"), int) and get_int(disk, "bootOrder") < 1:
        yield Cause(f"{own} must have a boot order > 0, if supplied", f"{own}.bootOrder")
    yield from _bus(own, f"{twice}[{index}]", disk, bus)
    yield from _texts(field, index, disk)
    yield from _block_size(own, disk)


def _bus(own: str, twice: str, disk: JsonObject, bus: str) -> Iterator[Cause]:
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
        elif target == "disk" and bus == "sata" and get_bool(disk, "disk", "readonly"):
            yield Cause("sata hard-disks do not support read-only.", path)
    if get_bool(disk, "dedicatedIOThread") and bus not in ("", "virtio"):
        yield Cause(f"IOThreads are not supported for disks on a {bus} bus", twice, NOT_SUPPORTED)


def _texts(field: str, index: int, disk: JsonObject) -> Iterator[Cause]:
    own = f"{field}[{index}]"
    serial = get_str(disk, "serial")
    if serial and not _SERIAL.match(serial):
        yield Cause(
            f"{own} must be made up of the following characters [A-Za-z0-9_.+-], if specified",
            f"{own}.serial",
        )
    if len(serial) > _MAX_SERIAL:
        yield Cause(
            f"{own} must be less than or equal to {_MAX_SERIAL} in length, if specified", f"{own}.serial"
        )
    cache = get_str(disk, "cache")
    if cache not in ("", "none", "writethrough", "writeback"):
        yield Cause(f"{own}.cache has invalid value {cache}", f"{own}.cache")
    if get_str(disk, "io") not in ("", "native", "threads"):
        yield Cause(
            f"Disk IO mode for {field} is not supported. Supported modes are: native, threads.",
            f"{field}.domain.devices.disks[{index}].io",
            NOT_SUPPORTED,
        )
    policy = disk.get("errorPolicy")
    if policy is not None and policy not in ("stop", "ignore", "report", "enospace"):
        yield Cause(f'{own}.errorPolicy has invalid value "{policy}"', f"{own}.errorPolicy")


def _block_size(own: str, disk: JsonObject) -> Iterator[Cause]:
    size = disk.get("blockSize")
    if not isinstance(size, dict):
        return
    path = f"{own}.blockSize"
    matches = size.get("matchVolume")
    is_matching = isinstance(matches, dict) and matches.get("enabled") is not False
    custom = size.get("custom")
    if not isinstance(custom, dict):
        return
    if is_matching:
        yield Cause("Block size matching can't be enabled together with a custom value", path)
        return
    logical, physical = get_int(custom, "logical"), get_int(custom, "physical")
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
    granularity = custom.get("discardGranularity")
    if isinstance(granularity, int) and logical and granularity % logical:
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


def boot_order_and_volumes(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Boot orders are unique over disks and cards, and every disk has the volume that it needs."""
    volumes = {get_str(volume, "name"): volume for volume in get_list(spec, "volumes")}
    taken: set[int] = set()
    for index, disk in enumerate(get_list(spec, "domain", "devices", "disks")):
        field = f"{path}.domain.devices.disks[{index}]"
        yield from _volume_of(field, disk, volumes.get(get_str(disk, "name")), config)
        order = disk.get("bootOrder")
        if isinstance(order, int):
            if order in taken:
                yield Cause(
                    f"Boot order for {field}.bootOrder already set for a different device.",
                    f"{field}.bootOrder",
                )
            taken.add(order)
    for index, interface in enumerate(get_list(spec, "domain", "devices", "interfaces")):
        order = interface.get("bootOrder")
        if not isinstance(order, int):
            continue
        field = f"{path}[{index}]"
        if order < 1:
            yield Cause(f"{field} must have a boot order > 0, if supplied", f"{field}.bootOrder")
        elif order in taken:
            where = f"{path}.domain.devices.interfaces[{index}].bootOrder"
            yield Cause(f"Boot order for {where} already set for a different device.", where)
        taken.add(order)


def _volume_of(
    field: str, disk: JsonObject, volume: JsonObject | None, config: ClusterConfig
) -> Iterator[Cause]:
    name, target = get_str(disk, "name"), target_of(disk)
    if volume is None:
        if target != "cdrom":
            yield Cause(f"{field}.Name '{name}' not found.", f"{field}.name")
        elif not config.gate("DeclarativeHotplugVolumes"):
            yield Cause(
                "DeclarativeHotplugVolumes feature gate not enabled, cannot define an empty CD-ROM disk",
                f"{field}.name",
            )
        return
    if target == "lun" and DISK_CLAIMS.isdisjoint(volume):
        yield Cause(
            f"{field}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume.",
            f"{field}.lun",
        )
    if "downwardMetrics" in volume:
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


def every_volume_is_used(spec: JsonObject) -> Iterator[Cause]:
    """Each volume of an instance shows up as a disk or a file system."""
    devices = get_object(spec, "domain", "devices")
    disk_names = {get_str(disk, "name") for disk in get_list(devices, "disks")}
    filesystem_names = {get_str(entry, "name") for entry in get_list(devices, "filesystems")}
    for index, volume in enumerate(get_list(spec, "volumes")):
        name, where = get_str(volume, "name"), f"spec.domain.volumes[{index}]"
        if "memoryDump" in volume:
            continue
        if name not in disk_names | filesystem_names:
            yield Cause(f"{where}.name '{name}' not found.", f"{where}.name")
        if "containerPath" not in volume:
            continue
        if name in disk_names:
            yield Cause(f"ContainerPath volume '{name}' must be mapped to a filesystem, not a disk", where)
        if name not in filesystem_names:
            yield Cause(
                f"ContainerPath volume '{name}' must have a matching filesystem defined"
                " in spec.domain.devices.filesystems",
                where,
            )
        path = get_str(volume, "containerPath", "path")
        prefix = next((each for each in _RESERVED if path.startswith(each)), "")
        if prefix:
            yield Cause(
                f"ContainerPath volume '{name}' uses reserved path prefix '{prefix}'",
                f"{where}.containerPath.path",
            )
