"""Kinds of Kubernetes' storage and of its snapshot controller, as far as controllers read them."""

from __future__ import annotations

from virtplane.api.core_v1 import PersistentVolumeClaimSpec
from virtplane.api.markers import ApiStruct, Quantity, Time
from virtplane.api.meta_v1 import ObjectMeta


class PersistentVolumeClaimStatus(ApiStruct, kw_only=True):
    """Whether the claim has its volume."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, kw_only=True):
    """A claim of storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class StorageClass(ApiStruct, kw_only=True):
    """Who provides volumes, and whether at once or when they are first used."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = ""


class VolumeSnapshotError(ApiStruct, kw_only=True):
    """The last error of the snapshot controller."""

    message: str | None = None
    time: Time | None = None


class VolumeSnapshotStatus(ApiStruct, kw_only=True):
    """How far a volume's snapshot is."""

    creation_time: Time | None = None
    error: VolumeSnapshotError | None = None
    ready_to_use: bool | None = None
    restore_size: Quantity | None = None


class VolumeSnapshot(ApiStruct, kw_only=True):
    """A snapshot of one volume."""

    metadata: ObjectMeta = ObjectMeta()
    status: VolumeSnapshotStatus = VolumeSnapshotStatus()


class VolumeSnapshotClass(ApiStruct, kw_only=True):
    """A driver that takes snapshots."""

    driver: str = ""
    metadata: ObjectMeta = ObjectMeta()
