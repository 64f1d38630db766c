"""What virt-handler says of hotplugged volumes in ``status.volumeStatus``, and the events about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import (
    DomainMemoryDumpInfo,
    VirtualMachineInstanceStatus,
    VolumeStatus,
)
from virtplane.compute import hotplug
from virtplane.compute.handler.hotplug.dumps import Dump
from virtplane.compute.handler.hotplug.plugs import Plugged

_BECOMES_MOUNTED = ("", hotplug.BOUND, hotplug.PENDING, hotplug.ATTACHED, hotplug.READY)


def reported(
    vmi: VirtualMachineInstance, targets: Mapping[str, str], found: Plugged
) -> tuple[VolumeStatus, ...]:
    """The entries with targets and, where the domain was looked at, with the phases of hotplugged volumes."""
    in_guest = found.in_guest or {}
    result = []
    for entry in vmi.status.volume_status:
        target = in_guest.get(entry.name) or targets.get(entry.name, "")
        fresh = replace(entry, target=target)
        if entry.hotplug_volume is not None and found.in_guest is not None:
            fresh = _advanced(fresh, vmi, found)
        result.append(fresh)
    return tuple(result)


def _advanced(entry: VolumeStatus, vmi: VirtualMachineInstance, found: Plugged) -> VolumeStatus:
    name = entry.name
    dump = found.dumps.get(name)
    is_in_guest, is_in_pod = name in (found.in_guest or {}), name in found.in_pod
    if hotplug.is_leaving(entry, vmi):
        if is_in_guest or is_in_pod or entry.phase == hotplug.UNMOUNTED:
            return entry
        text = f"Volume {name} has been unmounted from virt-launcher pod"
        return replace(entry, phase=hotplug.UNMOUNTED, reason="VolumeUnMountedFromPod", message=text)
    if dump is not None:
        return _dumped(entry, dump)
    if is_in_guest:
        text = f"Successfully attach hotplugged volume {name} to VM"
        return replace(entry, phase=hotplug.READY, reason="VolumeReady", message=text)
    if is_in_pod and (entry.phase or "") in _BECOMES_MOUNTED:
        return replace(entry, phase=hotplug.MOUNTED, reason="VolumeMountedToPod", message=_mounted(name))
    return entry


def _dumped(entry: VolumeStatus, dump: Dump) -> VolumeStatus:
    """The entry of a volume that the guest's memory is dumped into."""
    info = replace(
        entry.memory_dump_volume or DomainMemoryDumpInfo(claim_name=hotplug.held_claim(entry)),
        target_file_name=dump.file,
        start_timestamp=dump.started or None,
        end_timestamp=dump.ended or None,
    )
    name = entry.name
    if dump.failure:
        text = f"Memory dump to pvc {name} failed: {dump.failure}"
        phase, reason = hotplug.DUMP_FAILED, "VolumeMountedToPod"
    elif dump.ended:
        text = f"Memory dump to Volume {name} has completed successfully"
        phase, reason = hotplug.DUMPED, "VolumeReady"
    else:
        text = f"Memory dump Volume {name} is attached, getting memory dump"
        phase, reason = hotplug.DUMPING, "VolumeMountedToPod"
    return replace(entry, phase=phase, reason=reason, message=text, memory_dump_volume=info)


def _mounted(name: str) -> str:
    return f"Volume {name} has been mounted in virt-launcher pod"


def events(
    before: VirtualMachineInstanceStatus, after: VirtualMachineInstanceStatus
) -> Iterator[tuple[str, str]]:
    """Reason and message of what has become of hotplugged volumes."""
    known = {entry.name: entry.phase for entry in before.volume_status}
    for entry in after.volume_status:
        if entry.hotplug_volume is None or known.get(entry.name) == entry.phase:
            continue
        if entry.phase == hotplug.READY and known.get(entry.name) != hotplug.MOUNTED:
            # Both steps were taken in one pass.
            yield "VolumeMountedToPod", _mounted(entry.name)
        if entry.phase in (*hotplug.ON_NODE, hotplug.UNMOUNTED):
            yield entry.reason or "", entry.message or ""
        if entry.phase == hotplug.UNMOUNTED:
            yield "VolumeUnplugged", f"Volume {entry.name} has been unplugged"
