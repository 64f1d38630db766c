"""Changed block tracking and the backup under way."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ATOMIC, NULLABLE, ApiStruct, Time, describe


class VirtualMachineInstanceBackupVolumeInfo(ApiStruct, kw_only=True):
    """A volume that takes part in a backup."""

    volume_name: Annotated[str, describe("The volume's name.")]


class VirtualMachineInstanceBackupStatus(ApiStruct, kw_only=True):
    """The backup under way or done last. Nothing writes it yet."""

    backup_msg: Annotated[str | None, describe("What else there is to say of the backup.")] = None
    backup_name: Annotated[str | None, describe("The VirtualMachineBackup.")] = None
    checkpoint_name: Annotated[str | None, describe("The checkpoint that the backup made.")] = None
    completed: Annotated[bool | None, describe("Whether the backup has ended.")] = None
    end_timestamp: Annotated[Time | None, describe("When the backup ended.")] = None
    failed: Annotated[bool | None, describe("Whether the backup failed.")] = None
    quiesce_status: Annotated[str | None, describe("Whether the guest's file systems were frozen.")] = None
    start_timestamp: Annotated[Time | None, describe("When the backup began.")] = None
    volumes: Annotated[
        tuple[VirtualMachineInstanceBackupVolumeInfo, ...], describe("Volumes that take part."), ATOMIC
    ] = ()


class ChangedBlockTrackingStatus(ApiStruct, kw_only=True):
    """Changed block tracking, which incremental backups need. Nothing sets it up yet."""

    backup_status: Annotated[VirtualMachineInstanceBackupStatus | None, NULLABLE] = None
    state: Annotated[str, describe("Initializing, Enabled, PendingRestart, Disabled or Undefined.")]
