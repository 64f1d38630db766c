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
    """A ControllerRevision of the same namespace."""

    name: Annotated[str | None, describe("Its name.")] = None


class InstancetypeStatusRef(ApiStruct, kw_only=True):
    """The instance type or preference in effect, and the revision to which it is pinned."""

    controller_revision_ref: Annotated[
        ControllerRevisionRef | None, describe("The ControllerRevision that is used.")
    ] = None
    infer_from_volume: Annotated[str | None, describe("The volume from which it was inferred.")] = None
    infer_from_volume_failure_policy: Annotated[
        str | None, describe("What was to be done where it could not be inferred.")
    ] = None
    kind: Annotated[str | None, describe("Its kind, as the spec names it.")] = None
    name: Annotated[str | None, describe("Its name.")] = None


class VirtualMachineMemoryDumpRequest(ApiStruct, kw_only=True):
    """A dump of the guest's memory into a claim, and how far it is."""

    claim_name: Annotated[str, describe("The claim into which the memory is dumped.")]
    end_timestamp: Annotated[Time | None, describe("When the dump ended.")] = None
    file_name: Annotated[str | None, describe("The dump's file in the claim.")] = None
    message: Annotated[str | None, describe("Why the dump failed.")] = None
    phase: Annotated[str, describe("Associating, InProgress, Unmounting, Completed, Failed or Dissociating.")]
    remove: Annotated[bool | None, describe("Whether the claim is to be taken away.")] = None
    start_timestamp: Annotated[Time | None, describe("When the dump began.")] = None


class VirtualMachineStartFailure(ApiStruct, kw_only=True):
    """Consecutive failures to start, and when the next attempt is due."""

    consecutive_fail_count: Annotated[Int | None, describe("Starts in a row that failed.")] = None
    last_failed_vmiuid: Annotated[str | None, describe("The uid of the instance that failed last.")] = field(
        default=None, name="lastFailedVMIUID"
    )
    retry_after_timestamp: Annotated[
        Time | None, describe("When the next start is tried: up to 5 minutes after the last.")
    ] = None


class VirtualMachineStateChangeRequest(ApiStruct, kw_only=True):
    """A start or stop asked for through a subresource and not yet done."""

    action: Annotated[str, describe("Start or Stop.")]
    data: Annotated[Mapping[str, str], describe('paused: "true" starts the guest paused.')] = field(
        default_factory=dict
    )
    uid: Annotated[str | None, describe("The instance to stop.")] = None


class VirtualMachineVolumeRequest(ApiStruct, kw_only=True):
    """A volume to add or to remove, asked for through a subresource."""

    add_volume_options: AddVolumeOptions | None = None
    remove_volume_options: RemoveVolumeOptions | None = None


class VolumeSnapshotStatus(ApiStruct, kw_only=True):
    """Whether a volume can be snapshotted, and why not."""

    enabled: Annotated[bool, describe("Whether it can be: its storage class has a VolumeSnapshotClass.")]
    name: Annotated[str, describe("The volume.")]
    reason: Annotated[str | None, describe("Why not.")] = None


class VolumeMigrationState(ApiStruct, kw_only=True):
    """Volumes being migrated to other claims."""

    migrated_volumes: Annotated[
        tuple[StorageMigratedVolumeInfo, ...],
        describe("The volumes, with the claims that they leave and enter."),
        ATOMIC,
    ] = ()


class VolumeUpdateState(ApiStruct, kw_only=True):
    """Changes of volumes under way."""

    volume_migration_state: VolumeMigrationState | None = None


class VirtualMachineStatus(ApiStruct, kw_only=True):
    """What is observed of the machine, written by virt-controller."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, NULLABLE] = None
    conditions: Annotated[
        tuple[Condition, ...],
        describe("Those of the instance, and Ready, Failure, RestartRequired of the machine's own."),
    ] = ()
    created: Annotated[bool | None, describe("Whether the instance exists.")] = None
    desired_generation: Annotated[Int64 | None, describe("The generation of the spec.")] = None
    instancetype_ref: Annotated[InstancetypeStatusRef | None, NULLABLE] = None
    memory_dump_request: Annotated[VirtualMachineMemoryDumpRequest | None, NULLABLE] = None
    observed_generation: Annotated[
        Int64 | None, describe("The generation of the spec that the running instance is made of.")
    ] = None
    preference_ref: Annotated[InstancetypeStatusRef | None, NULLABLE] = None
    printable_status: Annotated[
        str | None,
        mark(default="Stopped"),
        describe(
            "The state in a word: Stopped, Starting, Running, Paused, Stopping, Provisioning, "
            "CrashLoopBackOff, ..."
        ),
    ] = None
    ready: Annotated[bool | None, describe("Whether the instance is ready.")] = None
    restore_in_progress: Annotated[
        str | None, describe("The VirtualMachineRestore under way; the run strategy is locked meanwhile.")
    ] = None
    run_strategy: Annotated[str | None, describe("The run strategy in effect.")] = None
    snapshot_in_progress: Annotated[
        str | None,
        describe("The VirtualMachineSnapshot under way; volumes and run strategy are locked meanwhile."),
    ] = None
    start_failure: Annotated[VirtualMachineStartFailure | None, NULLABLE] = None
    state_change_requests: Annotated[
        tuple[VirtualMachineStateChangeRequest, ...],
        describe("Starts and stops that are asked for, oldest first."),
    ] = ()
    volume_requests: Annotated[
        tuple[VirtualMachineVolumeRequest, ...], describe("Volumes that are asked to come or go."), ATOMIC
    ] = ()
    volume_snapshot_statuses: Annotated[
        tuple[VolumeSnapshotStatus, ...], describe("Whether each volume can be snapshotted.")
    ] = ()
    volume_update_state: VolumeUpdateState | None = None
