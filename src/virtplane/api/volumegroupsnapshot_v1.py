"""VolumeGroupSnapshot, its content and its class (``groupsnapshot.storage.k8s.io``).

The schemas and their rules are those of the definitions that upstream's snapshot controller comes with, of
v1beta2 and v1, which are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.markers import REQUIRED, ApiStruct, Int64, Time, rules
from virtplane.api.meta_v1 import LabelSelector, ObjectMeta
from virtplane.api.volumesnapshot_v1 import (
    DELETION_POLICY,
    VolumeSnapshotError,
    checked,
    immutable,
    kept,
    one_of_two,
)


def _set_once(field_name: str, verb: str = "is") -> Any:
    return rules(("self == oldSelf", f"{field_name} {verb} immutable once set"))


class VolumeGroupSnapshotSource(ApiStruct, kw_only=True):
    """The claims to take a snapshot of together, or the content of a group that exists already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("selector"),
        kept("volumeGroupSnapshotContentName"),
        one_of_two("selector", "volumeGroupSnapshotContentName"),
    )
    selector: Annotated[LabelSelector | None, immutable("selector")] = None
    volume_group_snapshot_content_name: Annotated[str | None, immutable("volumeGroupSnapshotContentName")] = (
        None
    )


class VolumeGroupSnapshotSpec(ApiStruct, kw_only=True):
    """What a group's snapshot is taken of, and by which class."""

    source: Annotated[VolumeGroupSnapshotSource, REQUIRED] = VolumeGroupSnapshotSource()
    volume_group_snapshot_class_name: Annotated[
        str | None,
        rules(("size(self) > 0", "volumeGroupSnapshotClassName must not be the empty string when set")),
    ] = None


class VolumeGroupSnapshotStatus(ApiStruct, kw_only=True):
    """How far a group's snapshot is."""

    bound_volume_group_snapshot_content_name: Annotated[
        str | None, _set_once("boundVolumeGroupSnapshotContentName")
    ] = None
    creation_time: Time | None = None
    error: VolumeSnapshotError | None = None
    ready_to_use: bool | None = None


class VolumeGroupSnapshot(ApiStruct, kw_only=True):
    """Snapshots of several volumes at one moment, as their user sees them."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeGroupSnapshotSpec, REQUIRED] = VolumeGroupSnapshotSpec()
    status: VolumeGroupSnapshotStatus = VolumeGroupSnapshotStatus()


class VolumeGroupSnapshotReference(ApiStruct, kw_only=True):
    """The group that a content belongs to; without uid, the one of that name may take it."""

    schema_marks: ClassVar[Mapping[str, Any]] = {
        "x-kubernetes-map-type": "atomic",
        **checked(
            (
                "has(self.name) && has(self.__namespace__)",
                "both volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace must be set",
            ),
            (
                "self.name == oldSelf.name && self.__namespace__ == oldSelf.__namespace__",
                "volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace are immutable",
            ),
            (
                "!has(oldSelf.uid) || (has(self.uid) && self.uid == oldSelf.uid)",
                "volumeGroupSnapshotRef.uid is immutable once set",
            ),
        ),
    }
    api_version: str | None = None
    field_path: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    uid: str | None = None


class GroupSnapshotHandles(ApiStruct, kw_only=True):
    """A group's snapshot that exists in the storage already, and the snapshots in it."""

    volume_group_snapshot_handle: Annotated[str, REQUIRED] = ""
    volume_snapshot_handles: Annotated[tuple[str, ...], REQUIRED] = ()


class VolumeGroupSnapshotContentSource(ApiStruct, kw_only=True):
    """The volumes to take a snapshot of, or the group that exists in the storage already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("volumeHandles"),
        kept("groupSnapshotHandles"),
        one_of_two("volumeHandles", "groupSnapshotHandles"),
    )
    group_snapshot_handles: Annotated[GroupSnapshotHandles | None, immutable("groupSnapshotHandles")] = None
    volume_handles: Annotated[tuple[str, ...], immutable("volumeHandles")] = ()


class VolumeGroupSnapshotContentSpec(ApiStruct, kw_only=True):
    """Which group of which driver this is, and what becomes of it when it is no longer wanted."""

    deletion_policy: Annotated[str, DELETION_POLICY, REQUIRED] = ""
    driver: Annotated[str, _set_once("driver"), REQUIRED] = ""
    source: Annotated[VolumeGroupSnapshotContentSource, REQUIRED] = VolumeGroupSnapshotContentSource()
    volume_group_snapshot_class_name: Annotated[str | None, _set_once("volumeGroupSnapshotClassName")] = None
    volume_group_snapshot_ref: Annotated[VolumeGroupSnapshotReference, REQUIRED] = (
        VolumeGroupSnapshotReference()
    )


class VolumeSnapshotInfo(ApiStruct, kw_only=True):
    """One snapshot of a group. `creation_time` counts nanoseconds since 1970, `restore_size` bytes."""

    creation_time: Int64 | None = None
    ready_to_use: bool | None = None
    restore_size: Int64 | None = None
    snapshot_handle: str = ""
    volume_handle: str = ""


class VolumeGroupSnapshotContentStatus(ApiStruct, kw_only=True):
    """What the driver says of the group."""

    creation_time: Time | None = None
    error: VolumeSnapshotError | None = None
    ready_to_use: bool | None = None
    volume_group_snapshot_handle: Annotated[str | None, _set_once("volumeGroupSnapshotHandle")] = None
    volume_snapshot_info_list: tuple[VolumeSnapshotInfo, ...] = ()


class VolumeGroupSnapshotContent(ApiStruct, kw_only=True):
    """A group's snapshot in the storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeGroupSnapshotContentSpec, REQUIRED] = VolumeGroupSnapshotContentSpec()
    status: VolumeGroupSnapshotContentStatus | None = None


class VolumeGroupSnapshotClass(ApiStruct, kw_only=True):
    """A driver that takes snapshots of groups, and how."""

    deletion_policy: Annotated[str, DELETION_POLICY, _set_once("deletionPolicy"), REQUIRED] = ""
    driver: Annotated[str, _set_once("driver"), REQUIRED] = ""
    metadata: ObjectMeta = ObjectMeta()
    parameters: Annotated[Mapping[str, str], _set_once("parameters", "are")] = field(default_factory=dict)
