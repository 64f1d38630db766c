"""What may change in the spec of a running instance: disks and volumes that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS
from virtplane.compute.apiserver.admission.response import DUPLICATE, REQUIRED, Cause
from virtplane.compute.apiserver.admission.rules.disks import bus_of, target_of

VMI_PREFIX = "Hotplug configuration"
VM_PREFIX = "AddVolume request"


def limits(spec: JsonObject, old: JsonObject) -> Iterator[Cause]:
    """The headroom for CPUs and memory is fixed once it is set."""
    cpu, old_cpu = get_object(spec, "domain", "cpu"), get_object(old, "domain", "cpu")
    most, old_most = get_int(cpu, "maxSockets"), get_int(old_cpu, "maxSockets")
    if most and old_most and most != old_most:
        yield Cause("CPU topology maxSockets changed", "spec.domain.cpu.maxSockets")
    guest = get_object(spec, "domain", "memory").get("maxGuest")
    old_guest = get_object(old, "domain", "memory").get("maxGuest")
    if guest is not None and old_guest is not None and guest != old_guest:
        yield Cause("Memory maxGuest changed", "spec.domain.memory.maxGuest")


def _by_name(entries: list[JsonObject]) -> dict[str, JsonObject]:
    return {get_str(entry, "name"): entry for entry in entries}


def _permanent(instance: JsonObject) -> set[str]:
    """Names of volumes that were there from the start."""
    return {
        get_str(status, "name")
        for status in get_list(instance, "status", "volumeStatus")
        if status.get("hotplugVolume") is None
    }


def utility_volumes(
    spec: JsonObject, old: JsonObject, old_instance: JsonObject, config: ClusterConfig
) -> Iterator[Cause]:
    """Utility volumes come and go but do not change, and their names are nobody else's."""
    entries = get_list(spec, "utilityVolumes")
    before = _by_name(get_list(old, "utilityVolumes"))
    if entries and not config.gate("UtilityVolumes"):
        yield Cause("UtilityVolumes feature gate is not enabled", "spec.utilityVolumes")
        return
    volumes = [get_str(volume, "name") for volume in get_list(spec, "volumes")]
    names: list[str] = []
    for index, entry in enumerate(entries):
        field, name = f"spec.utilityVolumes[{index}]", get_str(entry, "name")
        if not name:
            yield Cause("UtilityVolume 'name' must be set", f"{field}.name", REQUIRED)
        if not get_str(entry, "claimName"):
            yield Cause("UtilityVolume PVC 'claimName' must be set", f"{field}.claimName", REQUIRED)
        if name in names:
            other = f"spec.utilityVolumes[{names.index(name)}]"
            yield Cause(f"{field} and {other} must not have the same Name.", f"{field}.name", DUPLICATE)
        if name in volumes:
            other = f"spec.volumes[{volumes.index(name)}]"
            yield Cause(
                f"{field} conflicts with {other}. UtilityVolume names must be unique"
                " across both volumes and utilityVolumes.",
                f"{field}.name",
                DUPLICATE,
            )
        if name not in before and name in _permanent(old_instance):
            yield Cause(
                f"utility volume {name} cannot be a permanent volume, utility volumes must always be hotplug",
                field,
            )
        if name in before and before[name] != entry:
            yield Cause(f"utility volume {name} has changed", field)
        names.append(name)


def storage(instance: JsonObject, old_instance: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Permanent volumes stay as they are; others come and go whole."""
    spec, old = get_object(instance, "spec"), get_object(old_instance, "spec")
    volumes, old_volumes = get_list(spec, "volumes"), get_list(old, "volumes")
    disks = get_list(spec, "domain", "devices", "disks")
    if volumes == old_volumes and disks == get_list(old, "domain", "devices", "disks"):
        return
    declarative = config.gate("DeclarativeHotplugVolumes")
    yield from _counts(spec, declarative)
    permanent = _permanent(old_instance)
    migrated = {get_str(entry, "volumeName") for entry in get_list(instance, "status", "migratedVolumes")}
    new_by_name, old_by_name = _by_name(volumes), _by_name(old_volumes)
    disk_by_name = _by_name(disks)
    old_disks = _by_name(get_list(old, "domain", "devices", "disks"))
    kept = {name for name in old_by_name if name in permanent}
    if len(kept) != sum(1 for name in new_by_name if name in permanent):
        yield Cause("Number of permanent volumes has changed", "spec.volumes")
    for name in old_by_name:
        if name in kept:
            yield from _permanent_volume(name, new_by_name, old_by_name, disk_by_name, old_disks, migrated)
    for name, volume in new_by_name.items():
        if name in kept:
            continue
        if name in old_by_name:
            yield from _known_volume(
                name, volume, old_by_name[name], disk_by_name, old_disks, migrated, declarative
            )
        else:
            yield from _new_volume(name, volume, spec, disk_by_name)


def _counts(spec: JsonObject, declarative: bool) -> Iterator[Cause]:
    devices = get_object(spec, "domain", "devices")
    names = set(_by_name(get_list(spec, "volumes")))
    declared = sum(1 for volume in get_list(spec, "volumes") if "memoryDump" not in volume)
    disks = get_list(devices, "disks")
    empty = [disk for disk in disks if target_of(disk) == "cdrom" and get_str(disk, "name") not in names]
    needed = len(disks) + len(get_list(devices, "filesystems")) - (len(empty) if declarative else 0)
    if declared != needed:
        yield Cause(f"mismatch between volumes declared ({declared}) and required ({needed})", "spec.volumes")


def _permanent_volume(
    name: str,
    new: Mapping[str, JsonObject],
    old: Mapping[str, JsonObject],
    disks: Mapping[str, JsonObject],
    old_disks: Mapping[str, JsonObject],
    migrated: set[str],
) -> Iterator[Cause]:
    if name not in new:
        yield Cause(f"permanent volume {name}, not found", "spec.volumes")
        return
    if new[name] != old[name] and name not in migrated:
        yield Cause(f"permanent volume {name}, changed", "spec.volumes")
    if disks.get(name) != old_disks.get(name):
        yield Cause(f"permanent disk {name}, changed", "spec.domain.devices.disks")


def _known_volume(
    name: str,
    volume: JsonObject,
    old: JsonObject,
    disks: Mapping[str, JsonObject],
    old_disks: Mapping[str, JsonObject],
    migrated: set[str],
    declarative: bool,
) -> Iterator[Cause]:
    disk = disks.get(name)
    swaps = declarative and disk is not None and target_of(disk) == "cdrom"
    if volume != old and name not in migrated and not swaps:
        yield Cause(f"hotplug volume {name}, changed", "spec.volumes")
    if disk is None:
        if "memoryDump" not in volume:
            yield Cause(f"volume {name} doesn't have a matching disk", "spec.domain.devices.disks")
    elif name in old_disks and disk != old_disks[name]:
        yield Cause(f"hotplug disk {name}, changed", "spec.domain.devices.disks")


def _new_volume(
    name: str, volume: JsonObject, spec: JsonObject, disks: Mapping[str, JsonObject]
) -> Iterator[Cause]:
    if not any(kind.is_hotpluggable and kind.name in volume for kind in VOLUME_KINDS):
        yield Cause(f"volume {name} is not a PVC or DataVolume", "spec.volumes")
        return
    if "memoryDump" in volume:
        return
    disk = disks.get(name)
    if disk is None:
        yield Cause(f"disk {name} does not exist", "spec.domain.devices.disks")
        return
    yield from new_disk(disk, VMI_PREFIX)


def new_disk(disk: JsonObject, prefix: str) -> Iterator[Cause]:
    """How a disk that is plugged in may look. `prefix` begins every message."""
    name, target, bus = get_str(disk, "name"), target_of(disk), bus_of(disk)
    field = "spec.domain.devices.disks"
    if not target:
        yield Cause(f"{prefix} for [{name}] requires diskDevice of type 'disk' or 'lun' to be used.", field)
    elif target == "disk" and bus not in ("scsi", "virtio"):
        yield Cause(
            f"{prefix} for disk [{name}] requires bus to be 'scsi' or 'virtio'. [{bus}] is not permitted.",
            field,
        )
    elif target == "lun" and bus != "scsi":
        yield Cause(f"{prefix} for LUN [{name}] requires bus to be 'scsi'. [{bus}] is not permitted.", field)
    if disk.get("dedicatedIOThread") and bus != "virtio":
        yield Cause(f"{prefix} for [{name}] requires virtio bus for IOThreads.", field)
    order = disk.get("bootOrder")
    if isinstance(order, int) and order < 1:
        yield Cause(f"{field}[1] must have a boot order > 0, if supplied", f"{field}[1].bootOrder")
