"""VolumeGroupSnapshot, its content and its class (``groupsnapshot.storage.k8s.io``).

The schemas and their rules are those of the definitions that upstream's snapshot controller comes with, of
v1beta2 and v1, which are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.markers import REQUIRED, ApiStruct, Int64, Time, describe, rules
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
    selector: Annotated[
        LabelSelector | None,
        immutable("selector"),
        describe("Labels of the claims of this namespace to take a snapshot of together."),
    ] = None
    volume_group_snapshot_content_name: Annotated[
        str | None,
        immutable("volumeGroupSnapshotContentName"),
        describe("VolumeGroupSnapshotContent of a group that is in the storage already."),
    ] = None


class VolumeGroupSnapshotSpec(ApiStruct, kw_only=True):
    """What a group's snapshot is taken of, and by which class."""

    source: Annotated[VolumeGroupSnapshotSource, REQUIRED] = VolumeGroupSnapshotSource()
    volume_group_snapshot_class_name: Annotated[
        str | None,
        rules(("size(self) > 0", "volumeGroupSnapshotClassName must not be the empty string when set")),
        describe("VolumeGroupSnapshotClass; by default the one marked as default for the driver."),
    ] = None


class VolumeGroupSnapshotStatus(ApiStruct, kw_only=True):
    """How far a group's snapshot is, written by the snapshot controller."""

    bound_volume_group_snapshot_content_name: Annotated[
        str | None,
        _set_once("boundVolumeGroupSnapshotContentName"),
        describe("The VolumeGroupSnapshotContent; it counts if it names this group too."),
    ] = None
    creation_time: Annotated[Time | None, describe("When the storage took the snapshots.")] = None
    error: VolumeSnapshotError | None = None
    ready_to_use: Annotated[
        bool | None, describe("Whether volumes can be made of all snapshots of the group.")
    ] = None


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
    api_version: Annotated[str | None, describe("API version of the group.")] = None
    field_path: Annotated[str | None, describe("No effect.")] = None
    kind: Annotated[str | None, describe("Kind of the group: VolumeGroupSnapshot.")] = None
    name: Annotated[str | None, describe("Name of the group.")] = None
    namespace: Annotated[str | None, describe("Namespace of the group.")] = None
    resource_version: Annotated[
        str | None, describe("Resource version of the group when the content was made. No effect.")
    ] = None
    uid: Annotated[str | None, describe("UID of the group; set once it is bound.")] = None


class GroupSnapshotHandles(ApiStruct, kw_only=True):
    """A group's snapshot that exists in the storage already, and the snapshots in it."""

    volume_group_snapshot_handle: Annotated[str, REQUIRED, describe("The group's id in the storage.")] = ""
    volume_snapshot_handles: Annotated[
        tuple[str, ...], REQUIRED, describe("The ids of its snapshots in the storage.")
    ] = ()


class VolumeGroupSnapshotContentSource(ApiStruct, kw_only=True):
    """The volumes to take a snapshot of, or the group that exists in the storage already."""

    schema_marks: ClassVar[Mapping[str, Any]] = checked(
        kept("volumeHandles"),
        kept("groupSnapshotHandles"),
        one_of_two("volumeHandles", "groupSnapshotHandles"),
    )
    group_snapshot_handles: Annotated[GroupSnapshotHandles | None, immutable("groupSnapshotHandles")] = None
    volume_handles: Annotated[
        tuple[str, ...],
        immutable("volumeHandles"),
        describe("Ids in the storage of the volumes to take snapshots of."),
    ] = ()


class VolumeGroupSnapshotContentSpec(ApiStruct, kw_only=True):
    """Which group of which driver this is, and what becomes of it when it is no longer wanted."""

    deletion_policy: Annotated[
        str,
        DELETION_POLICY,
        REQUIRED,
        describe(
            "What becomes of the group in the storage: Delete removes it with this object, Retain keeps it."
        ),
    ] = ""
    driver: Annotated[
        str, _set_once("driver"), REQUIRED, describe("CSI driver that takes the snapshots.")
    ] = ""
    source: Annotated[VolumeGroupSnapshotContentSource, REQUIRED] = VolumeGroupSnapshotContentSource()
    volume_group_snapshot_class_name: Annotated[
        str | None,
        _set_once("volumeGroupSnapshotClassName"),
        describe("VolumeGroupSnapshotClass with the driver's parameters."),
    ] = None
    volume_group_snapshot_ref: Annotated[VolumeGroupSnapshotReference, REQUIRED] = (
        VolumeGroupSnapshotReference()
    )


class VolumeSnapshotInfo(ApiStruct, kw_only=True):
    """One snapshot of a group."""

    creation_time: Annotated[
        Int64 | None, describe("When the snapshot was taken, in nanoseconds since 1970.")
    ] = None
    ready_to_use: Annotated[bool | None, describe("Whether volumes can be made of the snapshot.")] = None
    restore_size: Annotated[Int64 | None, describe("Least size in bytes of volumes made of it.")] = None
    snapshot_handle: Annotated[str, describe("The snapshot's id in the storage.")] = ""
    volume_handle: Annotated[str, describe("The volume's id in the storage.")] = ""


class VolumeGroupSnapshotContentStatus(ApiStruct, kw_only=True):
    """What the driver says of the group, written by the CSI snapshotter."""

    creation_time: Annotated[Time | None, describe("When the snapshots were taken.")] = None
    error: VolumeSnapshotError | None = None
    ready_to_use: Annotated[
        bool | None, describe("Whether volumes can be made of all snapshots of the group.")
    ] = None
    volume_group_snapshot_handle: Annotated[
        str | None, _set_once("volumeGroupSnapshotHandle"), describe("The group's id in the storage.")
    ] = None
    volume_snapshot_info_list: Annotated[
        tuple[VolumeSnapshotInfo, ...], describe("The snapshots of the group.")
    ] = ()


class VolumeGroupSnapshotContent(ApiStruct, kw_only=True):
    """A group's snapshot in the storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VolumeGroupSnapshotContentSpec, REQUIRED] = VolumeGroupSnapshotContentSpec()
    status: VolumeGroupSnapshotContentStatus | None = None


class VolumeGroupSnapshotClass(ApiStruct, kw_only=True):
    """A driver that takes snapshots of groups, and how."""

    deletion_policy: Annotated[
        str,
        DELETION_POLICY,
        _set_once("deletionPolicy"),
        REQUIRED,
        describe(
            "What becomes of groups in the storage: Delete removes them with their objects, Retain"
            " keeps them."
        ),
    ] = ""
    driver: Annotated[str, _set_once("driver"), REQUIRED, describe("CSI driver that the class is for.")] = ""
    metadata: ObjectMeta = ObjectMeta()
    parameters: Annotated[
        Mapping[str, str],
        _set_once("parameters", "are"),
        describe(
            "Parameters for the driver; csi.storage.k8s.io/group-snapshotter-secret-name and"
            " -namespace name its secret."
        ),
    ] = field(default_factory=dict)
