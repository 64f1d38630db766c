"""The definitions of the snapshot API, for clusters that have none (decision 027)."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.api import resources
from virtplane.api.crds import Column, Definition, Version, custom_resource_definition
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent

MARK = "virtplane.io/snapshot-api"
"""The label of definitions that virtplane installed and whose controller it is. Who brings another snapshot
controller removes it.
"""
_APPROVED = "api-approved.kubernetes.io"
"""Without it the API server refuses a definition in a group of Kubernetes'; it names the review."""
_REVIEW = "https://github.com/kubernetes-csi/external-snapshotter/pull/814"
_REVIEW_OF_CONTENTS = "https://github.com/kubernetes-csi/external-snapshotter/pull/955"

_V1 = (Version("v1", storage=True),)
_AGE = Column("Age", "date", ".metadata.creationTimestamp")

DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        resources.VOLUME_SNAPSHOT_CLASSES,
        VolumeSnapshotClass,
        _V1,
        ("vsclass", "vsclasses"),
        (
            Column("Driver", "string", ".driver"),
            Column("DeletionPolicy", "string", ".deletionPolicy", "Whether snapshots go with their objects"),
            _AGE,
        ),
        categories=(),
        status=False,
    ),
    Definition(
        resources.VOLUME_SNAPSHOT_CONTENTS,
        VolumeSnapshotContent,
        _V1,
        ("vsc", "vscs"),
        (
            Column("ReadyToUse", "boolean", ".status.readyToUse", "Whether volumes can be made of it"),
            Column("RestoreSize", "integer", ".status.restoreSize", "The size of the snapshot in bytes"),
            Column("DeletionPolicy", "string", ".spec.deletionPolicy", "Whether the snapshot goes with it"),
            Column("Driver", "string", ".spec.driver", "The CSI driver that took the snapshot"),
            Column("VolumeSnapshotClass", "string", ".spec.volumeSnapshotClassName", "How it was taken"),
            Column("VolumeSnapshot", "string", ".spec.volumeSnapshotRef.name", "Whose content it is"),
            Column("VolumeSnapshotNamespace", "string", ".spec.volumeSnapshotRef.namespace"),
            _AGE,
        ),
        categories=(),
    ),
    Definition(
        resources.VOLUME_SNAPSHOTS,
        VolumeSnapshot,
        _V1,
        ("vs",),
        (
            Column("ReadyToUse", "boolean", ".status.readyToUse", "Whether volumes can be made of it"),
            Column("SourcePVC", "string", ".spec.source.persistentVolumeClaimName", "What it is taken of"),
            Column(
                "SourceSnapshotContent",
                "string",
                ".spec.source.volumeSnapshotContentName",
                "The content of a snapshot that existed before",
            ),
            Column("RestoreSize", "string", ".status.restoreSize", "The least size of volumes made of it"),
            Column("SnapshotClass", "string", ".spec.volumeSnapshotClassName", "How it is taken"),
            Column(
                "SnapshotContent",
                "string",
                ".status.boundVolumeSnapshotContentName",
                "Its content, if that names it too",
            ),
            Column("CreationTime", "date", ".status.creationTime", "When it was taken"),
            _AGE,
        ),
        categories=(),
    ),
)


def custom_resource_definitions() -> list[JsonObject]:
    """All definitions, with the mark."""
    contents = resources.VOLUME_SNAPSHOT_CONTENTS
    return [
        marked(definition, _REVIEW_OF_CONTENTS if definition.resource is contents else _REVIEW)
        for definition in DEFINITIONS
    ]


def marked(definition: Definition, review: str) -> JsonObject:
    """One definition, with the mark; `review` is the address of its review by Kubernetes."""
    document = custom_resource_definition(definition)
    document["metadata"]["labels"] = {MARK: ""}
    document["metadata"]["annotations"] = {_APPROVED: review}
    return document


def is_ours(definition: JsonObject) -> bool:
    """Whether virtplane installed the definition, and nobody has taken it over."""
    return MARK in meta.labels(definition)
