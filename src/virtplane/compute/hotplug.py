"""Which volumes of an instance its launcher and its guest start without.

virt-controller leaves them out of the launcher pod, virt-handler out of the domain: both ask here, because
a node that waited for a volume that the pod does not have would wait for ever.
"""

from __future__ import annotations

from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import Volume, kind_of


def is_hotpluggable(volume: Volume) -> bool:
    """Whether a volume may come and go while the guest runs."""
    kind = kind_of(volume)
    return kind is not None and kind.is_hotpluggable and bool(kind.source(volume).hotpluggable)


def hotplugged_volumes(vmi: VirtualMachineInstance) -> set[str]:
    """Names of the volumes that attachment pods bring to the guest, not the launcher pod.

    These are volumes declared ``hotpluggable``, from the start or later, and those that the status lists as
    hotplugged.
    """
    reported = {item.name for item in vmi.status.volume_status if item.hotplug_volume is not None}
    declared = {item.name for item in vmi.spec.volumes if is_hotpluggable(item)}
    return reported | declared


def permanent_disks(vmi: VirtualMachineInstance) -> list[Disk]:
    """The disks that the guest starts with. The drive of a hotplugged CD-ROM is one of them, empty."""
    hotplugged = hotplugged_volumes(vmi)
    disks = vmi.spec.domain.devices.disks
    return [disk for disk in disks if disk.cdrom is not None or disk.name not in hotplugged]
