"""``status.volumeStatus`` of an instance: one entry for each volume, sorted by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.compute.hotplug import hotplugged_volumes

DEFAULT_OVERHEAD = "0.055"
"""Share of a filesystem volume that disk images must leave free, where CDI says nothing."""

OverheadOf = Callable[[JsonObject], str]


def overhead_of(claim: JsonObject, cdi_config: JsonObject | None) -> str:
    """The filesystem overhead that applies to `claim`: none for block volumes, else CDI's for its class."""
    if get_str(claim, "spec", "volumeMode") == "Block":
        return "0"
    configured = get_object(cdi_config, "status", "filesystemOverhead")
    storage_class = get_str(claim, "spec", "storageClassName")
    by_class = get_object(configured, "storageClass").get(storage_class)
    return str(by_class or configured.get("global") or DEFAULT_OVERHEAD)


def claim_info(claim: JsonObject, overhead: str) -> JsonObject:
    """``persistentVolumeClaimInfo`` of a volume."""
    info: JsonObject = {"claimName": get_str(claim, "metadata", "name"), "filesystemOverhead": overhead}
    for key, value in (
        ("accessModes", get_list(claim, "spec", "accessModes")),
        ("volumeMode", get_str(claim, "spec", "volumeMode")),
        ("capacity", get_object(claim, "status", "capacity")),
        ("requests", get_object(claim, "spec", "resources", "requests")),
    ):
        if value:
            info[key] = value
    annotations = get_object(claim, "metadata", "annotations")
    if annotations.get("cdi.kubevirt.io/storage.preallocation") == "true":
        info["preallocated"] = True
    return info


def volume_status(
    vmi: JsonObject, claims: Mapping[str, JsonObject], cdi_config: JsonObject | None
) -> list[JsonObject]:
    """Entries for all volumes of the spec and those that outlive it; the node agent only adds to entries."""
    before = {get_str(item, "name"): item for item in get_list(vmi, "status", "volumeStatus")}
    hotplugged = hotplugged_volumes(decode(VirtualMachineInstance, vmi))
    result: list[JsonObject] = []
    for volume in [*get_list(vmi, "spec", "volumes"), *get_list(vmi, "spec", "utilityVolumes")]:
        name = get_str(volume, "name")
        entry = dict(before.get(name) or {"name": name, "target": ""})
        claim = claims.get(claim_name(decode(Volume, volume)))
        if claim is not None:
            entry["persistentVolumeClaimInfo"] = claim_info(claim, overhead_of(claim, cdi_config))
        if name in hotplugged:
            entry.setdefault("hotplugVolume", {})
        result.append(entry)
    kept = [
        item for name, item in before.items() if _outlives_spec(item, {get_str(e, "name") for e in result})
    ]
    return sorted([*result, *kept], key=lambda item: str(item["name"]))


def _outlives_spec(entry: JsonObject, present: set[str]) -> bool:
    """Hotplugged volumes may outlive it (see ``hotplug.with_attachment``); the state claim has no volume."""
    if entry.get("name") in present:
        return False
    return entry.get("hotplugVolume") is not None or entry.get("name") == "persistent-state-for-this-vm"
