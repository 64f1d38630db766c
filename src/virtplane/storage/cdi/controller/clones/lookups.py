"""What cloning reads of the cluster, from caches that all its controllers share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import Informer, Manager
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.volume_sources import VolumeCloneSource
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virtplane.cluster.caches import HasMetadata
from virtplane.storage.cdi.controller.clones.readiness import Users, is_populated
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers.pods import Pod, pod_informer

BY_UID = "uid"
BY_TARGET = "clone target"
"""Temporary objects by the uid of the claim that they are made for."""


class Lookups:
    """The caches. All methods raise UnfitDocument. Those of snapshots are empty where there are none."""

    def __init__(self, manager: Manager, settings: Settings) -> None:
        self.settings = settings
        self.claims: Informer[PersistentVolumeClaim] = manager.informer(
            PERSISTENT_VOLUME_CLAIMS,
            indexers={BY_UID: _uid, BY_TARGET: target_uids},
            struct=PersistentVolumeClaim,
        )
        self.pods: Informer[Pod] = pod_informer(manager)
        self.pods.add_index(BY_TARGET, target_uids)
        self.data_volumes: Informer[DataVolume] = manager.informer(resources.DATA_VOLUMES, struct=DataVolume)
        self.sources: Informer[VolumeCloneSource] = manager.informer(
            resources.VOLUME_CLONE_SOURCES, struct=VolumeCloneSource
        )
        self.snapshots: Informer[VolumeSnapshot] = manager.informer(
            resources.VOLUME_SNAPSHOTS, indexers={BY_TARGET: target_uids}, struct=VolumeSnapshot
        )
        self._contents: Informer[VolumeSnapshotContent] = manager.informer(
            resources.VOLUME_SNAPSHOT_CONTENTS, struct=VolumeSnapshotContent
        )
        self._snapshot_classes: Informer[VolumeSnapshotClass] = manager.informer(
            resources.VOLUME_SNAPSHOT_CLASSES, struct=VolumeSnapshotClass
        )

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """What controllers wait for before they work."""
        snapshots = (self.snapshots, self._contents, self._snapshot_classes)
        return (*self.settings.informers, self.claims, self.pods, self.data_volumes, self.sources, *snapshots)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim."""
        return self.claims.get(namespace, name)

    def snapshot(self, namespace: str, name: str) -> VolumeSnapshot | None:
        """A snapshot."""
        return self.snapshots.get(namespace, name)

    def content(self, snapshot: VolumeSnapshot) -> VolumeSnapshotContent | None:
        """What a snapshot is in the storage."""
        name = snapshot.status.bound_volume_snapshot_content_name
        return self._contents.get("", name) if name else None

    def snapshot_classes(self) -> Sequence[VolumeSnapshotClass]:
        """All classes of snapshots."""
        return tuple(self._snapshot_classes.list())

    def volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume of a claim."""
        name = claim.spec.volume_name
        return self.settings.volumes.get("", name) if name else None

    def target(self, uid: str) -> PersistentVolumeClaim | None:
        """The claim with this uid."""
        return next(iter(self.claims.by_index(BY_UID, uid)), None)

    def made_for(self, target: PersistentVolumeClaim, namespace: str) -> PersistentVolumeClaim | None:
        """The claim whose volume the target will get. It is in the namespace of the source: others may call
        a claim of theirs the same.
        """
        uid = target.metadata.uid
        found = self.claim(namespace, cdi_names.temporary_claim(uid))
        return found if found is not None and uid in target_uids(found) else None

    def users(self, claim: PersistentVolumeClaim) -> Users:
        """The pods that use a claim."""
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        return Users(claim.metadata.name, tuple(self.pods.by_index("claim", name)))

    def is_populated(self, claim: PersistentVolumeClaim) -> bool:
        """Whether a claim holds its content."""
        owner = claim.metadata.controller
        name = owner.name if owner is not None else ""
        return is_populated(claim, self.data_volumes.get(claim.metadata.namespace, name) if name else None)


def target_uids(obj: HasMetadata) -> Iterable[str]:
    """Index function: the claim that a temporary object is made for."""
    uid = obj.metadata.labels.get(names.OWNED_BY_UID)
    return (uid,) if uid else ()


def _uid(obj: HasMetadata) -> Iterable[str]:
    return (obj.metadata.uid,)
