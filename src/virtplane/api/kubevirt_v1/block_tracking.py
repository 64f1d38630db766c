"""Changed block tracking and the backup under way."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ATOMIC, NULLABLE, ApiStruct, Time


class VirtualMachineInstanceBackupVolumeInfo(ApiStruct, kw_only=True):
    """A volume that takes part in a backup."""

    volume_name: str


class VirtualMachineInstanceBackupStatus(ApiStruct, kw_only=True):
    """The backup under way or done last."""

    backup_msg: str | None = None
    backup_name: str | None = None
    checkpoint_name: str | None = None
    completed: bool | None = None
    end_timestamp: Time | None = None
    failed: bool | None = None
    quiesce_status: str | None = None
    start_timestamp: Time | None = None
    volumes: Annotated[tuple[VirtualMachineInstanceBackupVolumeInfo, ...], ATOMIC] = ()


class ChangedBlockTrackingStatus(ApiStruct, kw_only=True):
    """State of changed block tracking, the ground of incremental backups."""

    backup_status: Annotated[VirtualMachineInstanceBackupStatus | None, NULLABLE] = None
    state: str
