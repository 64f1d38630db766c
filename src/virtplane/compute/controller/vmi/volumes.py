"""``status.volumeStatus`` of an instance: one entry for each volume, sorted by name."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.storage_class import class_of
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import (
    DomainMemoryDumpInfo,
    HotplugVolumeStatus,
    PersistentVolumeClaimInfo,
    VolumeStatus,
)
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.compute.hotplug import all_volumes, hotplugged_volumes, is_leaving

DEFAULT_OVERHEAD = "0.055"
"""Share of a filesystem volume that disk images must leave free, where CDI says nothing."""

_ALLOCATED = ("/storage.preallocation", "/storage.thick-provisioned")
"""Parts of annotations of claims, after any prefix: CDI's, and those that owners and provisioners write."""


def overhead_of(claim: JsonObject, cdi_config: JsonObject | None) -> str:
    """The filesystem overhead of `claim`: none for block volumes, else CDI's for its StorageClass."""
    if get_str(claim, "spec", "volumeMode") == "Block":
        return "0"
    configured = get_object(cdi_config, "status", "filesystemOverhead")
    by_class = get_object(configured, "storageClass").get(class_of(claim))
    return str(by_class or configured.get("global") or DEFAULT_OVERHEAD)


def claim_info(claim: JsonObject, overhead: str) -> PersistentVolumeClaimInfo:
    """``persistentVolumeClaimInfo`` of a volume."""
    return PersistentVolumeClaimInfo(
        claim_name=meta.name(claim),
        filesystem_overhead=overhead,
        access_modes=tuple(get_list(claim, "spec", "accessModes")),
        volume_mode=get_str(claim, "spec", "volumeMode") or None,
        capacity=get_object(claim, "status", "capacity"),
        requests=get_object(claim, "spec", "resources", "requests"),
        preallocated=_is_preallocated(claim) or None,
    )


def _is_preallocated(claim: JsonObject) -> bool:
    """Whether the blocks of `claim` are all allocated, and are to stay so."""
    return any(
        value == "true" and any(name in key for name in _ALLOCATED)
        for key, value in meta.annotations(claim).items()
    )


def volume_status(
    vmi: VirtualMachineInstance, claims: Mapping[str, JsonObject], cdi_config: JsonObject | None
) -> list[VolumeStatus]:
    """Entries for all volumes of the spec and those kept longer; virt-handler only adds fields to entries."""
    before = {item.name: item for item in vmi.status.volume_status}
    hotplugged = hotplugged_volumes(vmi)
    dumps = {volume.name for volume in vmi.spec.volumes if volume.memory_dump is not None}
    result: dict[str, VolumeStatus] = {}
    sources = {volume.name: claim_name(volume) for volume in all_volumes(vmi)}
    for name, source in sources.items():
        entry = before.get(name) or VolumeStatus(name=name, target="")
        if is_leaving(entry, vmi):
            result[name] = entry  # it stands for another claim, until that is gone
            continue
        claim = claims.get(source)
        if claim is not None:
            info = claim_info(claim, overhead_of(claim, cdi_config))
            entry = replace(entry, persistent_volume_claim_info=info)
        if name in dumps and entry.memory_dump_volume is None:
            entry = replace(entry, memory_dump_volume=DomainMemoryDumpInfo(claim_name=source))
        if name in hotplugged and entry.hotplug_volume is None:
            entry = replace(entry, hotplug_volume=HotplugVolumeStatus())
        result[name] = entry
    kept = [item for item in before.values() if item.name not in result and _outlives_spec(item)]
    return sorted([*result.values(), *kept], key=lambda item: item.name)


def _outlives_spec(entry: VolumeStatus) -> bool:
    """Hotplugged volumes may outlive the spec (see ``hotplug.with_attachment``); the state claim is no
    volume.
    """
    return entry.hotplug_volume is not None or entry.name == "persistent-state-for-this-vm"
