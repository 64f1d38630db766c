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
    """The last error that a controller of snapshots met."""

    message: str | None = None
    time: Time | None = None


class VolumeSnapshotSource(ApiStruct, kw_only=True):
    """The claim to take a snapshot of, or the content of a snapshot that exists already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("persistentVolumeClaimName"),
        kept("volumeSnapshotContentName"),
        one_of_two("volumeSnapshotContentName", "persistentVolumeClaimName"),
    )
    persistent_volume_claim_name: Annotated[str | None, immutable("persistentVolumeClaimName")] = None
    volume_snapshot_content_name: Annotated[str | None, immutable("volumeSnapshotContentName")] = None


class VolumeSnapshotSpec(ApiStruct, kw_only=True):
    """What a snapshot is taken of, and by which class."""

    source: Annotated[VolumeSnapshotSource, REQUIRED] = VolumeSnapshotSource()
    volume_snapshot_class_name: Annotated[
        str | None,
        rules(("size(self) > 0", "volumeSnapshotClassName must not be the empty string when set")),
    ] = None


class VolumeSnapshotStatus(ApiStruct, kw_only=True):
    """How far a volume's snapshot is."""

    bound_volume_snapshot_content_name: str | None = None
    creation_time: Time | None = None
    error: VolumeSnapshotError | None = None
    ready_to_use: bool | None = None
    restore_size: Annotated[
        str | int | None, mark(type="string", pattern=QUANTITY_PATTERN, x_kubernetes_int_or_string=True)
    ] = None
    volume_group_snapshot_name: str | None = None


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
    api_version: str | None = None
    field_path: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    uid: str | None = None


class VolumeSnapshotContentSource(ApiStruct, kw_only=True):
    """The volume to take a snapshot of, or the snapshot that exists in the storage already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("volumeHandle"), kept("snapshotHandle"), one_of_two("volumeHandle", "snapshotHandle")
    )
    snapshot_handle: Annotated[str | None, immutable("snapshotHandle")] = None
    volume_handle: Annotated[str | None, immutable("volumeHandle")] = None


class VolumeSnapshotContentSpec(ApiStruct, kw_only=True):
    """Which snapshot of which driver this is, and what becomes of it when it is no longer wanted."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(kept("sourceVolumeMode"))
    deletion_policy: Annotated[str, DELETION_POLICY, REQUIRED] = ""
    driver: Annotated[str, REQUIRED] = ""
    source: Annotated[VolumeSnapshotContentSource, REQUIRED] = VolumeSnapshotContentSource()
    source_volume_mode: Annotated[str | None, immutable("sourceVolumeMode")] = None
    volume_snapshot_class_name: str | None = None
    volume_snapshot_ref: Annotated[VolumeSnapshotReference, REQUIRED] = VolumeSnapshotReference()


class VolumeSnapshotContentStatus(ApiStruct, kw_only=True):
    """What the driver says of the snapshot. `creation_time` counts nanoseconds since 1970."""

    creation_time: Int64 | None = None
    error: VolumeSnapshotError | None = None
    ready_to_use: bool | None = None
    restore_size: Annotated[Int64 | None, mark(minimum=0)] = None
    snapshot_handle: str | None = None
    volume_group_snapshot_handle: str | None = None


class VolumeSnapshotContent(ApiStruct, kw_only=True):
    """A snapshot in the storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeSnapshotContentSpec, REQUIRED] = VolumeSnapshotContentSpec()
    status: VolumeSnapshotContentStatus | None = None


class VolumeSnapshotClass(ApiStruct, kw_only=True):
    """A driver that takes snapshots, and how."""

    deletion_policy: Annotated[str, DELETION_POLICY, REQUIRED] = ""
    driver: Annotated[str, REQUIRED] = ""
    metadata: ObjectMeta = ObjectMeta()
    parameters: Mapping[str, str] = field(default_factory=dict)
