"""``status.volumeSnapshotStatuses``: which volumes of a VM could be snapshotted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name


def volume_snapshot_statuses(
    vm: JsonObject,
    claims: Mapping[str, JsonObject],
    storage_classes: Mapping[str, JsonObject],
    snapshot_classes: Iterable[JsonObject],
) -> list[JsonObject]:
    """One entry for each volume of the template, in its order."""
    drivers = {get_str(item, "driver") for item in snapshot_classes}
    result: list[JsonObject] = []
    for volume in get_list(vm, "spec", "template", "spec", "volumes"):
        name = get_str(volume, "name")
        reason = _obstacle(volume, claims, storage_classes, drivers)
        entry: JsonObject = {"name": name, "enabled": not reason}
        if reason:
            entry["reason"] = reason
        result.append(entry)
    return result


def _obstacle(
    volume: JsonObject,
    claims: Mapping[str, JsonObject],
    storage_classes: Mapping[str, JsonObject],
    drivers: set[str],
) -> str:
    name = get_str(volume, "name")
    claim_of_volume = claim_name(decode(Volume, volume))
    if not claim_of_volume or "ephemeral" in volume:
        return f"Snapshot is not supported for this volumeSource type [{name}]"
    claim = claims.get(claim_of_volume)
    if claim is None:
        return "PVC not found"
    storage_class = get_str(claim, "spec", "storageClassName")
    if get_str(storage_classes.get(storage_class), "provisioner") not in drivers or not drivers:
        return (
            "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass "
            f"[{storage_class}] [{name}]"
        )
    return ""
