"""VolumeSnapshot, its content and its class (``snapshot.storage.k8s.io/v1``).

The schemas and their rules are those of the definitions that upstream's snapshot controller comes with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.markers import (
    QUANTITY_PATTERN,
    REQUIRED,
    ApiStruct,
    Int64,
    Time,
    describe,
    mark,
    one_of,
    rules,
)
from virtplane.api.meta_v1 import ObjectMeta

DELETION_POLICY = one_of("Delete", "Retain")


def immutable(field_name: str) -> Any:
    """The rule that a field keeps its value."""
    return rules(("self == oldSelf", f"{field_name} is immutable"))


def kept(field_name: str) -> tuple[str, str]:
    """The rule that a field does not go once it is there, and its message."""
    return f"!has(oldSelf.{field_name}) || has(self.{field_name})", f"{field_name} is required once set"


def one_of_two(first: str, second: str) -> tuple[str, str]:
    """The rule that there is one field or the other, and its message."""
    rule = f"(has(self.{first}) && !has(self.{second})) || (!has(self.{first}) && has(self.{second}))"
    return rule, f"exactly one of {first} and {second} must be set"


def checked(*validations: tuple[str, str]) -> Mapping[str, Any]:
    """Rules of a whole object, each with its message, as marks of its struct."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": text} for rule, text in validations]}


class VolumeSnapshotError(ApiStruct, kw_only=True):
    """The last error; gone once the snapshot is ready."""

    message: Annotated[str | None, describe("What went wrong, for people.")] = None
    time: Annotated[Time | None, describe("When it went wrong.")] = None


class VolumeSnapshotSource(ApiStruct, kw_only=True):
    """The claim to take a snapshot of, or the content of a snapshot that exists already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("persistentVolumeClaimName"),
        kept("volumeSnapshotContentName"),
        one_of_two("volumeSnapshotContentName", "persistentVolumeClaimName"),
    )
    persistent_volume_claim_name: Annotated[
        str | None,
        immutable("persistentVolumeClaimName"),
        describe("Claim of this namespace to take a snapshot of."),
    ] = None
    volume_snapshot_content_name: Annotated[
        str | None,
        immutable("volumeSnapshotContentName"),
        describe("VolumeSnapshotContent of a snapshot that is in the storage already."),
    ] = None


class VolumeSnapshotSpec(ApiStruct, kw_only=True):
    """What a snapshot is taken of, and by which class."""

    source: Annotated[VolumeSnapshotSource, REQUIRED] = VolumeSnapshotSource()
    volume_snapshot_class_name: Annotated[
        str | None,
        rules(("size(self) > 0", "volumeSnapshotClassName must not be the empty string when set")),
        describe("VolumeSnapshotClass; by default the one marked as default for the volume's driver."),
    ] = None


class VolumeSnapshotStatus(ApiStruct, kw_only=True):
    """How far a volume's snapshot is, written by the snapshot controller."""

    bound_volume_snapshot_content_name: Annotated[
        str | None, describe("The VolumeSnapshotContent; it counts if it names this snapshot too.")
    ] = None
    creation_time: Annotated[Time | None, describe("When the storage took the snapshot.")] = None
    error: VolumeSnapshotError | None = None
    ready_to_use: Annotated[bool | None, describe("Whether volumes can be made of the snapshot.")] = None
    restore_size: Annotated[
        str | int | None,
        mark(type="string", pattern=QUANTITY_PATTERN, x_kubernetes_int_or_string=True),
        describe("Least size of volumes made of it, such as 10Gi."),
    ] = None
    volume_group_snapshot_name: Annotated[
        str | None, describe("The VolumeGroupSnapshot that the snapshot was taken with.")
    ] = None


class VolumeSnapshot(ApiStruct, kw_only=True):
    """A snapshot of one volume, as its user sees it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeSnapshotSpec, REQUIRED] = VolumeSnapshotSpec()
    status: VolumeSnapshotStatus = VolumeSnapshotStatus()


class VolumeSnapshotReference(ApiStruct, kw_only=True):
    """The snapshot that a content belongs to; without uid, the one of that name may take it."""

    schema_marks: ClassVar[Mapping[str, Any]] = {
        "x-kubernetes-map-type": "atomic",
        **checked(
            (
                "has(self.name) && has(self.__namespace__)",
                "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set",
            )
        ),
    }
    api_version: Annotated[str | None, describe("API version of the snapshot.")] = None
    field_path: Annotated[str | None, describe("No effect.")] = None
    kind: Annotated[str | None, describe("Kind of the snapshot: VolumeSnapshot.")] = None
    name: Annotated[str | None, describe("Name of the snapshot.")] = None
    namespace: Annotated[str | None, describe("Namespace of the snapshot.")] = None
    resource_version: Annotated[
        str | None, describe("Resource version of the snapshot when the content was made. No effect.")
    ] = None
    uid: Annotated[str | None, describe("UID of the snapshot; set once it is bound.")] = None


class VolumeSnapshotContentSource(ApiStruct, kw_only=True):
    """The volume to take a snapshot of, or the snapshot that exists in the storage already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("volumeHandle"), kept("snapshotHandle"), one_of_two("volumeHandle", "snapshotHandle")
    )
    snapshot_handle: Annotated[
        str | None,
        immutable("snapshotHandle"),
        describe("The snapshot's id in the storage, for one that exists there already."),
    ] = None
    volume_handle: Annotated[
        str | None,
        immutable("volumeHandle"),
        describe("The volume's id in the storage, for a snapshot that is to be taken."),
    ] = None


class VolumeSnapshotContentSpec(ApiStruct, kw_only=True):
    """Which snapshot of which driver this is, and what becomes of it when it is no longer wanted."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(kept("sourceVolumeMode"))
    deletion_policy: Annotated[
        str,
        DELETION_POLICY,
        REQUIRED,
        describe(
            "What becomes of the snapshot in the storage: Delete removes it with this object, Retain"
            " keeps it."
        ),
    ] = ""
    driver: Annotated[str, REQUIRED, describe("CSI driver that takes the snapshot.")] = ""
    source: Annotated[VolumeSnapshotContentSource, REQUIRED] = VolumeSnapshotContentSource()
    source_volume_mode: Annotated[
        str | None,
        immutable("sourceVolumeMode"),
        describe("Filesystem or Block, as the volume was; volumes made of it have the same."),
    ] = None
    volume_snapshot_class_name: Annotated[
        str | None, describe("VolumeSnapshotClass with the driver's parameters.")
    ] = None
    volume_snapshot_ref: Annotated[VolumeSnapshotReference, REQUIRED] = VolumeSnapshotReference()


class VolumeSnapshotContentStatus(ApiStruct, kw_only=True):
    """What the driver says of the snapshot, written by the CSI snapshotter."""

    creation_time: Annotated[
        Int64 | None, describe("When the snapshot was taken, in nanoseconds since 1970.")
    ] = None
    error: VolumeSnapshotError | None = None
    ready_to_use: Annotated[bool | None, describe("Whether volumes can be made of the snapshot.")] = None
    restore_size: Annotated[
        Int64 | None, mark(minimum=0), describe("Least size in bytes of volumes made of it.")
    ] = None
    snapshot_handle: Annotated[str | None, describe("The snapshot's id in the storage.")] = None
    volume_group_snapshot_handle: Annotated[
        str | None, describe("The id of the group in the storage that the snapshot was taken with.")
    ] = None


class VolumeSnapshotContent(ApiStruct, kw_only=True):
    """A snapshot in the storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeSnapshotContentSpec, REQUIRED] = VolumeSnapshotContentSpec()
    status: VolumeSnapshotContentStatus | None = None


class VolumeSnapshotClass(ApiStruct, kw_only=True):
    """A driver that takes snapshots, and how."""

    deletion_policy: Annotated[
        str,
        DELETION_POLICY,
        REQUIRED,
        describe(
            "What becomes of snapshots in the storage: Delete removes them with their objects, Retain"
            " keeps them."
        ),
    ] = ""
    driver: Annotated[str, REQUIRED, describe("CSI driver that the class is for.")] = ""
    metadata: ObjectMeta = ObjectMeta()
    parameters: Annotated[
        Mapping[str, str],
        describe(
            "Parameters for the driver; csi.storage.k8s.io/snapshotter-secret-name and -namespace"
            " name its secret."
        ),
    ] = field(default_factory=dict)
