"""Which volumes of an instance are not its launcher's: attachment pods bring them, also to a running guest.

virt-controller leaves them out of the launcher pod and makes the attachment pods; virt-handler fetches them
from there. Both ask here, because a node that waited for a volume that no pod has would wait for ever.

An entry of ``status.volumeStatus`` stands for one volume with one claim, from the first attempt to plug it
until it is gone. Where the spec has no such volume any more, or one with another claim, the entry *leaves*:
the guest loses the disk first, then the pod, and only then may another claim take the name.
"""

from __future__ import annotations

from collections.abc import Collection

from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VolumeStatus
from virtplane.api.kubevirt_v1.volume_sources import PersistentVolumeClaimVolumeSource
from virtplane.api.kubevirt_v1.volumes import (
    Volume,
    claim_name,
    is_disk_claim,
    kind_of,
)
from virtplane.api.paths import HOTPLUG_DIR

PENDING, BOUND, ATTACHED = "Pending", "Bound", "AttachedToNode"
MOUNTED, READY = "MountedToPod", "Ready"
DETACHING, UNMOUNTED = "Detaching", "UnMountedFromPod"
"""Phases of a hotplugged volume, in the order in which it passes through them."""

DUMPING, DUMPED, DUMP_FAILED = "MemoryDumpInProgress", "MemoryDumpCompleted", "MemoryDumpFailed"
"""Phases of a volume for the guest's memory, after `MOUNTED`."""

ON_NODE = (MOUNTED, READY, DUMPING, DUMPED, DUMP_FAILED)
"""Phases of a volume that the launcher's pod has."""


def is_hotpluggable(volume: Volume) -> bool:
    """Whether a volume may come and go while the guest runs."""
    kind = kind_of(volume)
    return kind is not None and kind.is_hotpluggable and bool(kind.source(volume).hotpluggable)


def hotplugged_volumes(vmi: VirtualMachineInstance) -> set[str]:
    """Names of the volumes that attachment pods bring to the guest, not the launcher pod.

    These are volumes declared ``hotpluggable``, from the start or later, utility volumes, and those that the
    status lists as hotplugged.
    """
    reported = {item.name for item in vmi.status.volume_status if item.hotplug_volume is not None}
    declared = {item.name for item in all_volumes(vmi) if is_hotpluggable(item)}
    return reported | declared


def all_volumes(vmi: VirtualMachineInstance) -> list[Volume]:
    """The instance's volumes, with its utility volumes as claims that come and go."""
    utility = [
        Volume(
            name=each.name,
            persistent_volume_claim=PersistentVolumeClaimVolumeSource(
                claim_name=each.claim_name, hotpluggable=True, read_only=each.read_only
            ),
        )
        for each in vmi.spec.utility_volumes
    ]
    return [*vmi.spec.volumes, *utility]


def plug_places(volume: str) -> tuple[str, str]:
    """Where the launcher has a hotplugged claim: as a device (or a utility volume's folder), or as a disk in
    a file.
    """
    return f"{HOTPLUG_DIR}/{volume}", f"{HOTPLUG_DIR}/{volume}.img"


def held_claim(entry: VolumeStatus) -> str:
    """The claim that an entry of a hotplugged volume stands for; empty while it is not known."""
    info = entry.persistent_volume_claim_info
    return (info.claim_name or "") if info is not None else ""


def is_leaving(entry: VolumeStatus, vmi: VirtualMachineInstance) -> bool:
    """Whether a hotplugged volume has to go: it left the spec, or has another claim there."""
    if entry.hotplug_volume is None:
        return False
    volume = next((each for each in all_volumes(vmi) if each.name == entry.name), None)
    return volume is None or held_claim(entry) not in ("", claim_name(volume))


def plugged_volumes(vmi: VirtualMachineInstance) -> dict[str, VolumeStatus]:
    """The entries of the volumes that the guest is to have as disks by hotplug, by name."""
    disks = {disk.name for disk in vmi.spec.domain.devices.disks}
    volumes = {each.name for each in vmi.spec.volumes if is_disk_claim(each)}
    return {
        entry.name: entry
        for entry in vmi.status.volume_status
        if entry.hotplug_volume is not None and entry.name in disks & volumes and not is_leaving(entry, vmi)
    }


def dump_volumes(vmi: VirtualMachineInstance) -> dict[str, VolumeStatus]:
    """The entries of the volumes that the guest's memory is dumped into, by name."""
    volumes = {each.name for each in vmi.spec.volumes if each.memory_dump is not None}
    return {
        entry.name: entry
        for entry in vmi.status.volume_status
        if entry.hotplug_volume is not None and entry.name in volumes and not is_leaving(entry, vmi)
    }


def utility_volumes(vmi: VirtualMachineInstance) -> dict[str, VolumeStatus]:
    """The entries of the claims that the launcher's pod is to have beside the guest's disks, by name."""
    names = {each.name for each in vmi.spec.utility_volumes}
    return {
        entry.name: entry
        for entry in vmi.status.volume_status
        if entry.hotplug_volume is not None and entry.name in names and not is_leaving(entry, vmi)
    }


def started_disks(vmi: VirtualMachineInstance, plugged: Collection[str]) -> list[Disk]:
    """The disks that the guest starts with, where the volumes `plugged` have been brought to its pod."""
    permanent = permanent_disks(vmi)
    return [disk for disk in vmi.spec.domain.devices.disks if disk in permanent or disk.name in plugged]


def permanent_disks(vmi: VirtualMachineInstance) -> list[Disk]:
    """The disks that are the guest's from start to end. The drive of a hotplugged CD-ROM is one of them."""
    hotplugged = hotplugged_volumes(vmi)
    disks = vmi.spec.domain.devices.disks
    return [disk for disk in disks if disk.cdrom is not None or disk.name not in hotplugged]
