"""The definitions of the group snapshot API, for clusters that have none (decision 027)."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import resources
from virtplane.api.crds import Column, Definition, Version
from virtplane.api.volumegroupsnapshot_v1 import (
    VolumeGroupSnapshot,
    VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent,
)
from virtplane.api.volumesnapshot_crds import marked

_REVIEW = "https://github.com/kubernetes-csi/external-snapshotter/pull/1337"

_VERSIONS = (
    Version("v1"),
    Version("v1beta2", storage=True),
    Version(
        "v1beta1",
        deprecation="groupsnapshot.storage.k8s.io/v1beta1 is deprecated;"
        " use groupsnapshot.storage.k8s.io/v1beta2",
    ),
)
"""One schema for all, so nothing converts: v1beta1's readers find the list of v1beta2."""
_AGE = Column("Age", "date", ".metadata.creationTimestamp")

DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        resources.VOLUME_GROUP_SNAPSHOT_CLASSES,
        VolumeGroupSnapshotClass,
        _VERSIONS,
        ("vgsclass", "vgsclasses"),
        (
            Column("Driver", "string", ".driver"),
            Column("DeletionPolicy", "string", ".deletionPolicy", "Whether groups go with their objects"),
            _AGE,
        ),
        categories=(),
        status=False,
    ),
    Definition(
        resources.VOLUME_GROUP_SNAPSHOT_CONTENTS,
        VolumeGroupSnapshotContent,
        _VERSIONS,
        ("vgsc", "vgscs"),
        (
            Column("ReadyToUse", "boolean", ".status.readyToUse", "Whether volumes can be made of it"),
            Column("DeletionPolicy", "string", ".spec.deletionPolicy", "Whether the group goes with it"),
            Column("Driver", "string", ".spec.driver", "The CSI driver that took the group"),
            Column("VolumeGroupSnapshotClass", "string", ".spec.volumeGroupSnapshotClassName"),
            Column("VolumeGroupSnapshotNamespace", "string", ".spec.volumeGroupSnapshotRef.namespace"),
            Column("VolumeGroupSnapshot", "string", ".spec.volumeGroupSnapshotRef.name", "Whose it is"),
            _AGE,
        ),
        categories=(),
    ),
    Definition(
        resources.VOLUME_GROUP_SNAPSHOTS,
        VolumeGroupSnapshot,
        _VERSIONS,
        ("vgs",),
        (
            Column("ReadyToUse", "boolean", ".status.readyToUse", "Whether volumes can be made of it"),
            Column("VolumeGroupSnapshotClass", "string", ".spec.volumeGroupSnapshotClassName"),
            Column(
                "VolumeGroupSnapshotContent",
                "string",
                ".status.boundVolumeGroupSnapshotContentName",
                "Its content, if that names it too",
            ),
            Column("CreationTime", "date", ".status.creationTime", "When it was taken"),
            _AGE,
        ),
        categories=(),
    ),
)


def custom_resource_definitions() -> list[JsonObject]:
    """All definitions, with the mark of the snapshot API's."""
    return [marked(definition, _REVIEW) for definition in DEFINITIONS]
