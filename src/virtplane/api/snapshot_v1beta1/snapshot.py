"""VirtualMachineSnapshot and its content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from kubecore.objects.durations import seconds_of
from virtplane.api.conditions import Condition
from virtplane.api.core_v1 import PersistentVolumeClaimSpec, TypedLocalObjectReference
from virtplane.api.kubevirt_v1.vm import VirtualMachineSpec
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.api.markers import (
    ATOMIC,
    NULLABLE,
    PRESERVE,
    REQUIRED,
    SET,
    ApiStruct,
    Duration,
    Time,
    describe,
)
from virtplane.api.meta_v1 import ObjectMeta

_DEADLINE_SECONDS = 300.0


class VirtualMachineSnapshotSpec(ApiStruct, kw_only=True):
    """Whose snapshot, and when it counts as failed. Cannot be changed."""

    deletion_policy: Annotated[
        str | None,
        describe(
            "Retain keeps the content, and so the volume snapshots, when this object is deleted; else"
            " they go."
        ),
    ] = None
    failure_deadline: Annotated[
        Duration | None,
        describe("How long the snapshot may take before it fails, such as 10m; 5m by default, 0 for ever."),
    ] = None
    source: Annotated[
        TypedLocalObjectReference, describe("The VirtualMachine (group kubevirt.io) to take a snapshot of.")
    ]

    @property
    def deadline_seconds(self) -> float:
        """Seconds after creation at which an unfinished snapshot fails; 0 for never.

        A deadline that came past admission and is no duration is that of snapshots without one.
        """
        try:
            return _DEADLINE_SECONDS if self.failure_deadline is None else seconds_of(self.failure_deadline)
        except ValueError:
            return _DEADLINE_SECONDS


class SnapshotError(ApiStruct, kw_only=True):
    """The last error; gone once all is ready."""

    message: Annotated[str | None, describe("What went wrong, for people.")] = None
    time: Annotated[Time | None, describe("When it went wrong.")] = None


class SnapshotVolumesLists(ApiStruct, kw_only=True):
    """Which volumes are in the snapshot, and which are not."""

    excluded_volumes: Annotated[
        tuple[str, ...], SET, describe("Volumes of which no snapshot could be taken.")
    ] = ()
    included_volumes: Annotated[tuple[str, ...], SET, describe("Volumes with a snapshot.")] = ()


class SourceIndication(ApiStruct, kw_only=True):
    """How much a snapshot can be relied on, and why."""

    indication: Annotated[str, describe("Online, Paused, GuestAgent, NoGuestAgent or PartialSnapshot.")]
    message: Annotated[str, describe("What that means for the snapshot, for people.")]


class VirtualMachineSnapshotStatus(ApiStruct, kw_only=True):
    """How far the snapshot is and what it holds, written by virt-controller."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[
        tuple[Condition, ...],
        ATOMIC,
        describe("Progressing and Ready; Failure once the deadline has passed."),
    ] = ()
    creation_time: Annotated[Time | None, NULLABLE, describe("When all volumes had been taken.")] = None
    error: SnapshotError | None = None
    indications: Annotated[
        tuple[str, ...],
        SET,
        describe("How far it can be relied on: Online, Paused, GuestAgent, NoGuestAgent, PartialSnapshot."),
    ] = ()
    phase: Annotated[str | None, describe("InProgress, Succeeded or Failed.")] = None
    ready_to_use: Annotated[bool | None, describe("Whether machines can be restored from the snapshot.")] = (
        None
    )
    snapshot_volumes: SnapshotVolumesLists | None = None
    source_indications: Annotated[
        tuple[SourceIndication, ...], ATOMIC, describe("The indications with explanations.")
    ] = ()
    source_uid: Annotated[str | None, describe("UID of the machine.")] = field(default=None, name="sourceUID")
    virtual_machine_snapshot_content_name: Annotated[
        str | None, describe("VirtualMachineSnapshotContent that holds the snapshot.")
    ] = None


class VirtualMachineSnapshot(ApiStruct, kw_only=True):
    """A snapshot of a machine and of its volumes."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineSnapshotSpec
    status: VirtualMachineSnapshotStatus = VirtualMachineSnapshotStatus()


class SnapshotVirtualMachine(ApiStruct, kw_only=True):
    """The machine as it was."""

    metadata: Annotated[
        ObjectMeta, NULLABLE, PRESERVE, describe("Name, labels and annotations of the machine then.")
    ] = ObjectMeta()
    spec: Annotated[VirtualMachineSpec | None, describe("What the machine was, as its guest ran.")] = None
    status: Annotated[
        VirtualMachineStatus | None, describe("Instance type and preference that the machine had.")
    ] = None


class SourceSpec(ApiStruct, kw_only=True):
    """What the snapshot was taken of."""

    virtual_machine: SnapshotVirtualMachine = SnapshotVirtualMachine()


class PersistentVolumeClaim(ApiStruct, kw_only=True):
    """A claim as it was."""

    metadata: Annotated[ObjectMeta, PRESERVE, describe("Name, labels and annotations of the claim then.")] = (
        ObjectMeta()
    )
    spec: PersistentVolumeClaimSpec | None = None


class VolumeBackup(ApiStruct, kw_only=True):
    """A claim of the machine and the snapshot of it."""

    persistent_volume_claim: PersistentVolumeClaim
    volume_name: Annotated[str, describe("Name of the machine's volume.")]
    volume_snapshot_name: Annotated[str | None, describe("VolumeSnapshot of the claim.")] = None


class VirtualMachineSnapshotContentSpec(ApiStruct, kw_only=True):
    """The machine as it was, and its volumes. Written by virt-controller."""

    source: Annotated[SourceSpec, REQUIRED] = SourceSpec()
    virtual_machine_snapshot_name: Annotated[
        str | None, describe("VirtualMachineSnapshot that this is the content of.")
    ] = None
    volume_backups: Annotated[
        tuple[VolumeBackup, ...], ATOMIC, describe("The volumes of the machine and their snapshots.")
    ] = ()


class ContentVolumeSnapshotStatus(ApiStruct, kw_only=True):
    """Whether a volume snapshot is ready."""

    creation_time: Annotated[Time | None, NULLABLE, describe("When the storage took the snapshot.")] = None
    error: Annotated[
        SnapshotError | None, describe("What the VolumeSnapshot says is wrong, also while it is ready.")
    ] = None
    ready_to_use: Annotated[bool | None, describe("Whether volumes can be made of the VolumeSnapshot.")] = (
        None
    )
    volume_snapshot_name: Annotated[str, describe("Name of the VolumeSnapshot.")]


class VirtualMachineSnapshotContentStatus(ApiStruct, kw_only=True):
    """Whether every volume snapshot is ready, written by virt-controller."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    creation_time: Annotated[Time | None, NULLABLE, describe("When all volumes had been taken.")] = None
    error: SnapshotError | None = None
    ready_to_use: Annotated[bool | None, describe("Whether all volume snapshots are there and ready.")] = None
    volume_snapshot_status: Annotated[
        tuple[ContentVolumeSnapshotStatus, ...], ATOMIC, describe("The state of each VolumeSnapshot.")
    ] = ()


class VirtualMachineSnapshotContent(ApiStruct, kw_only=True):
    """What a snapshot holds. virt-controller makes it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VirtualMachineSnapshotContentSpec, REQUIRED] = VirtualMachineSnapshotContentSpec()
    status: VirtualMachineSnapshotContentStatus = VirtualMachineSnapshotContentStatus()
