"""Permitted changes in the spec of a running instance: hotplugged disks and volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS, Volume
from virtplane.compute.apiserver.admission.rules.compute import quantity
from virtplane.compute.apiserver.admission.rules.disks import bus_of, target_of
from virtplane.serving.responses import DUPLICATE, REQUIRED, Cause

VMI_PREFIX = "Hotplug configuration"
VM_PREFIX = "AddVolume request"


def limits(spec: VirtualMachineInstanceSpec, old: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """The maximum sockets and memory are immutable once they are set."""
    if (spec.domain.cpu.max_sockets or 0) != (old.domain.cpu.max_sockets or 0):
        yield Cause("CPU topology maxSockets changed")
    guest = quantity(spec.domain.memory.max_guest)
    old_guest = quantity(old.domain.memory.max_guest)
    if guest is not None and old_guest is not None and guest != old_guest:
        yield Cause("Memory maxGuest changed")


def _permanent(instance: VirtualMachineInstance) -> set[str]:
    """Names of volumes that were there from the start."""
    return {entry.name for entry in instance.status.volume_status if entry.hotplug_volume is None}


def utility_volumes(
    spec: VirtualMachineInstanceSpec, old_instance: VirtualMachineInstance, config: ClusterConfig
) -> Iterator[Cause]:
    """Utility volumes may be added and removed but not changed; their names must be unique."""
    entries = spec.utility_volumes
    before = {entry.name: entry for entry in old_instance.spec.utility_volumes}
    if entries and not config.gate("UtilityVolumes"):
        yield Cause("UtilityVolumes feature gate is not enabled", "spec.utilityVolumes")
        return
    volumes = [volume.name for volume in spec.volumes]
    names: list[str] = []
    for index, entry in enumerate(entries):
        field, name = f"spec.utilityVolumes[{index}]", entry.name
        if not name:
            yield Cause("UtilityVolume 'name' must be set", f"{field}.name", REQUIRED)
        if not entry.claim_name:
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
        if name in _permanent(old_instance):
            yield Cause(
                f"utility volume {name} cannot be a permanent volume, utility volumes must always be hotplug"
            )
        if name in before and before[name] != entry:
            yield Cause(f"utility volume {name} has changed")
        names.append(name)


def storage(
    instance: VirtualMachineInstance, old_instance: VirtualMachineInstance, config: ClusterConfig
) -> Iterator[Cause]:
    """Permanent volumes are immutable; hotplugged ones come and go with their disks. Only the first error
    counts.
    """
    spec, old = instance.spec, old_instance.spec
    volumes = {volume.name: volume for volume in spec.volumes}
    old_volumes = {volume.name: volume for volume in old.volumes}
    disks = {disk.name: disk for disk in spec.domain.devices.disks}
    old_disks = {disk.name: disk for disk in old.domain.devices.disks}
    declared, needed = _counts(spec, declarative=config.gate("DeclarativeHotplugVolumes"))
    if declared != needed:
        yield Cause(f"mismatch between volumes declared ({declared}) and required ({needed})")
    permanent = _permanent(old_instance)
    if len(permanent & set(volumes)) != len(permanent & set(old_volumes)):
        yield Cause("Number of permanent volumes has changed")
    declarative = config.gate("DeclarativeHotplugVolumes")
    drives = {name for name, disk in disks.items() if declarative and disk.cdrom is not None}
    migrated = {entry.volume_name for entry in instance.status.migrated_volumes}
    for name, volume in sorted(volumes.items(), key=lambda entry: entry[0] not in permanent):
        kind = "permanent" if name in permanent else "hotplug"
        before = old_volumes.get(name)
        if before is None and name in permanent:
            yield Cause(f"permanent volume {name}, not found")
        elif before is None:
            yield from _new_volume(name, volume, disks, old_disks)
        elif name in migrated and name in permanent:
            continue
        elif volume != before and name not in migrated and not (name in drives and name not in permanent):
            yield Cause(f"{kind} volume {name}, changed")
        elif name not in disks and name not in permanent and volume.memory_dump is None:
            yield Cause(f"volume {name} doesn't have a matching disk")
        elif disks.get(name) != old_disks.get(name):
            yield Cause(f"{kind} disk {name}, changed")


def _counts(spec: VirtualMachineInstanceSpec, *, declarative: bool) -> tuple[int, int]:
    """How many volumes there are, and how many disks and file systems need one."""
    names = {volume.name for volume in spec.volumes if volume.memory_dump is None}
    needed = len(spec.domain.devices.filesystems)
    for disk in spec.domain.devices.disks:
        is_empty = target_of(disk) == "cdrom" and disk.name not in names
        needed += not (declarative and is_empty)
    return len(names), needed


def _new_volume(
    name: str, volume: Volume, disks: Mapping[str, Disk], old_disks: Mapping[str, Disk]
) -> Iterator[Cause]:
    if not any(kind.is_hotpluggable and kind.source(volume) is not None for kind in VOLUME_KINDS):
        yield Cause(f"volume {name} is not a PVC or DataVolume")
    elif volume.memory_dump is not None:
        return
    elif name not in disks:
        yield Cause(f"disk {name} does not exist")
    elif name not in old_disks:
        yield from new_disk(disks[name], name, VMI_PREFIX, "")


def new_disk(disk: Disk, name: str, prefix: str, field: str) -> Iterator[Cause]:
    """The first error of a hotplugged disk. `prefix` begins the message, `field` is the path."""
    target, bus, order = target_of(disk), bus_of(disk), disk.boot_order
    if not target or target == "cdrom":
        yield Cause(f"{prefix} for [{name}] requires diskDevice of type 'disk' or 'lun' to be used.", field)
    elif target == "disk" and bus not in ("scsi", "virtio"):
        yield Cause(
            f"{prefix} for disk [{name}] requires bus to be 'scsi' or 'virtio'. [{bus}] is not permitted.",
            field,
        )
    elif target == "lun" and bus != "scsi":
        yield Cause(f"{prefix} for LUN [{name}] requires bus to be 'scsi'. [{bus}] is not permitted.", field)
    elif disk.dedicated_io_thread and bus != "virtio":
        yield Cause(f"{prefix} for [{name}] requires virtio bus for IOThreads.", field)
    elif order is not None and order < 1:
        where = "spec.domain.devices.disks[1]"
        yield Cause(f"{where} must have a boot order > 0, if supplied", f"{where}.bootOrder")
