"""What snapshots say of the volume that they are of, and whether they can be cloned: pure functions."""

from __future__ import annotations

from kubecore.objects.quantity import Quantity
from virtplane.api import cdi_labels as names
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotStatus


def source_mode(snapshot: VolumeSnapshot, content: VolumeSnapshotContent | None) -> str:
    """The volume mode of what the snapshot is of; empty where nobody knows."""
    said = content.spec.source_volume_mode if content is not None else None
    return said or snapshot.metadata.annotations.get(names.SOURCE_VOLUME_MODE, "")


def problem(snapshot: VolumeSnapshot) -> str:
    """Why no clone can be made of the snapshot; empty where one can."""
    metadata, status = snapshot.metadata, snapshot.status
    if status == VolumeSnapshotStatus():
        return "no status on source snapshot yet"
    if status.error is not None:
        return f"snapshot in error state with msg: {status.error.message or 'no details'}"
    if not snapshot.spec.volume_snapshot_class_name:
        name = f"{metadata.name}/{metadata.namespace}"
        return f"snapshot {name} does not have volume snap class populated, can't clone"
    if status.restore_size is None or Quantity.parse(status.restore_size).value < 0:
        return "snapshot has no restore size"
    return ""
