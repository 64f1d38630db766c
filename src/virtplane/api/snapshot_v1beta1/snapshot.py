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
)
from virtplane.api.meta_v1 import ObjectMeta

_DEADLINE_SECONDS = 300.0


class VirtualMachineSnapshotSpec(ApiStruct, kw_only=True):
    """Whose snapshot, and when it counts as failed."""

    deletion_policy: str | None = None
    failure_deadline: Duration | None = None
    source: TypedLocalObjectReference

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
    """The last error, and when it happened."""

    message: str | None = None
    time: Time | None = None


class SnapshotVolumesLists(ApiStruct, kw_only=True):
    """Volumes within the snapshot and those left out."""

    excluded_volumes: Annotated[tuple[str, ...], SET] = ()
    included_volumes: Annotated[tuple[str, ...], SET] = ()


class SourceIndication(ApiStruct, kw_only=True):
    """How much a snapshot can be relied on, and why."""

    indication: str
    message: str


class VirtualMachineSnapshotStatus(ApiStruct, kw_only=True):
    """How far the snapshot is and what it holds."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[tuple[Condition, ...], ATOMIC] = ()
    creation_time: Annotated[Time | None, NULLABLE] = None
    error: SnapshotError | None = None
    indications: Annotated[tuple[str, ...], SET] = ()
    phase: str | None = None
    ready_to_use: bool | None = None
    snapshot_volumes: SnapshotVolumesLists | None = None
    source_indications: Annotated[tuple[SourceIndication, ...], ATOMIC] = ()
    source_uid: str | None = field(default=None, name="sourceUID")
    virtual_machine_snapshot_content_name: str | None = None


class VirtualMachineSnapshot(ApiStruct, kw_only=True):
    """A snapshot of a machine and of its volumes."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachineSnapshotSpec
    status: VirtualMachineSnapshotStatus = VirtualMachineSnapshotStatus()


class SnapshotVirtualMachine(ApiStruct, kw_only=True):
    """The machine as it was."""

    metadata: Annotated[ObjectMeta, NULLABLE, PRESERVE] = ObjectMeta()
    spec: VirtualMachineSpec | None = None
    status: VirtualMachineStatus | None = None


class SourceSpec(ApiStruct, kw_only=True):
    """What was snapshotted."""

    virtual_machine: SnapshotVirtualMachine = SnapshotVirtualMachine()


class PersistentVolumeClaim(ApiStruct, kw_only=True):
    """A claim as it was."""

    metadata: Annotated[ObjectMeta, PRESERVE] = ObjectMeta()
    spec: PersistentVolumeClaimSpec | None = None


class VolumeBackup(ApiStruct, kw_only=True):
    """A claim of the machine and the snapshot of it."""

    persistent_volume_claim: PersistentVolumeClaim
    volume_name: str
    volume_snapshot_name: str | None = None


class VirtualMachineSnapshotContentSpec(ApiStruct, kw_only=True):
    """The machine as it was, and its volumes."""

    source: Annotated[SourceSpec, REQUIRED] = SourceSpec()
    virtual_machine_snapshot_name: str | None = None
    volume_backups: Annotated[tuple[VolumeBackup, ...], ATOMIC] = ()


class ContentVolumeSnapshotStatus(ApiStruct, kw_only=True):
    """Whether a volume snapshot is ready."""

    creation_time: Annotated[Time | None, NULLABLE] = None
    error: SnapshotError | None = None
    ready_to_use: bool | None = None
    volume_snapshot_name: str


class VirtualMachineSnapshotContentStatus(ApiStruct, kw_only=True):
    """Whether every volume snapshot is ready."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    creation_time: Annotated[Time | None, NULLABLE] = None
    error: SnapshotError | None = None
    ready_to_use: bool | None = None
    volume_snapshot_status: Annotated[tuple[ContentVolumeSnapshotStatus, ...], ATOMIC] = ()


class VirtualMachineSnapshotContent(ApiStruct, kw_only=True):
    """What a snapshot holds."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VirtualMachineSnapshotContentSpec, REQUIRED] = VirtualMachineSnapshotContentSpec()
    status: VirtualMachineSnapshotContentStatus = VirtualMachineSnapshotContentStatus()
