"""What is observed of a VirtualMachine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.block_tracking import ChangedBlockTrackingStatus
from virtplane.api.kubevirt_v1.subresources import AddVolumeOptions, RemoveVolumeOptions
from virtplane.api.kubevirt_v1.vmi_status import StorageMigratedVolumeInfo
from virtplane.api.markers import ATOMIC, NULLABLE, ApiStruct, Int, Int64, Time, describe, mark


class ControllerRevisionRef(ApiStruct, kw_only=True):
    """The name of a ControllerRevision."""

    name: str | None = None


class InstancetypeStatusRef(ApiStruct, kw_only=True):
    """The instance type or preference in effect and the revision it was pinned to."""

    controller_revision_ref: ControllerRevisionRef | None = None
    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None


class VirtualMachineMemoryDumpRequest(ApiStruct, kw_only=True):
    """A dump of the guest's memory into a claim, and how far it is."""

    claim_name: str
    end_timestamp: Time | None = None
    file_name: str | None = None
    message: str | None = None
    phase: str
    remove: bool | None = None
    start_timestamp: Time | None = None


class VirtualMachineStartFailure(ApiStruct, kw_only=True):
    """Consecutive failures to start, and when the next attempt is due."""

    consecutive_fail_count: Int | None = None
    last_failed_vmiuid: str | None = field(default=None, name="lastFailedVMIUID")
    retry_after_timestamp: Time | None = None


class VirtualMachineStateChangeRequest(ApiStruct, kw_only=True):
    """A start, stop or rename asked for through a subresource and not yet done."""

    action: str
    data: Mapping[str, str] = field(default_factory=dict)
    uid: str | None = None


class VirtualMachineVolumeRequest(ApiStruct, kw_only=True):
    """A volume to add or to remove, asked for through a subresource."""

    add_volume_options: AddVolumeOptions | None = None
    remove_volume_options: RemoveVolumeOptions | None = None


class VolumeSnapshotStatus(ApiStruct, kw_only=True):
    """Whether a volume can be snapshotted, and why not."""

    enabled: bool
    name: str
    reason: str | None = None


class VolumeMigrationState(ApiStruct, kw_only=True):
    """Volumes being migrated to other claims."""

    migrated_volumes: Annotated[tuple[StorageMigratedVolumeInfo, ...], ATOMIC] = ()


class VolumeUpdateState(ApiStruct, kw_only=True):
    """Changes of volumes under way."""

    volume_migration_state: VolumeMigrationState | None = None


class VirtualMachineStatus(ApiStruct, kw_only=True):
    """What is observed of the machine."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, NULLABLE] = None
    conditions: tuple[Condition, ...] = ()
    created: Annotated[bool | None, describe("Whether the instance exists.")] = None
    desired_generation: Int64 | None = None
    instancetype_ref: Annotated[InstancetypeStatusRef | None, NULLABLE] = None
    memory_dump_request: Annotated[VirtualMachineMemoryDumpRequest | None, NULLABLE] = None
    observed_generation: Int64 | None = None
    preference_ref: Annotated[InstancetypeStatusRef | None, NULLABLE] = None
    printable_status: Annotated[
        str | None,
        mark(default="Stopped"),
        describe("The state in a word: Stopped, Starting, Running, Paused, Migrating, ..."),
    ] = None
    ready: Annotated[bool | None, describe("Whether the instance is ready.")] = None
    restore_in_progress: str | None = None
    run_strategy: Annotated[str | None, describe("The run strategy in effect.")] = None
    snapshot_in_progress: str | None = None
    start_failure: Annotated[VirtualMachineStartFailure | None, NULLABLE] = None
    state_change_requests: tuple[VirtualMachineStateChangeRequest, ...] = ()
    volume_requests: Annotated[tuple[VirtualMachineVolumeRequest, ...], ATOMIC] = ()
    volume_snapshot_statuses: tuple[VolumeSnapshotStatus, ...] = ()
    volume_update_state: VolumeUpdateState | None = None
