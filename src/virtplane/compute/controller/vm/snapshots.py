"""``status.volumeSnapshotStatuses``: whether each volume of a VM can be snapshotted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshotClass


def volume_snapshot_statuses(
    volumes: Iterable[Volume],
    claims: Mapping[str, PersistentVolumeClaim],
    storage_classes: Iterable[StorageClass],
    snapshot_classes: Iterable[VolumeSnapshotClass],
) -> list[JsonObject]:
    """One entry for each of the volumes, in their order. `claims` are the volumes' claims by name."""
    drivers = {item.driver for item in snapshot_classes}
    usable = {item.metadata.name for item in storage_classes if item.provisioner in drivers}
    result: list[JsonObject] = []
    for volume in volumes:
        reason = _obstacle(volume, claims, usable)
        entry: JsonObject = {"name": volume.name, "enabled": not reason}
        if reason:
            entry["reason"] = reason
        result.append(entry)
    return result


def _obstacle(volume: Volume, claims: Mapping[str, PersistentVolumeClaim], usable: set[str]) -> str:
    name = claim_name(volume)
    if not name or volume.ephemeral is not None:
        return f"Snapshot is not supported for this volumeSource type [{volume.name}]"
    claim = claims.get(name)
    if claim is None:
        return "PVC not found"
    storage_class = claim.spec.storage_class_name or ""
    if storage_class not in usable:
        return (
            "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass "
            f"[{storage_class}] [{volume.name}]"
        )
    return ""
