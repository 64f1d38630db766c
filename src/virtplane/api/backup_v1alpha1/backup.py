"""VirtualMachineBackup and VirtualMachineBackupTracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import ObservedCondition
from virtplane.api.core_v1 import TypedLocalObjectReference
from virtplane.api.markers import (
    ATOMIC,
    ApiStruct,
    Duration,
    Time,
    describe,
    list_map,
    one_of,
    rules,
)
from virtplane.api.meta_v1 import ObjectMeta

_KNOWN_GROUP = (
    "!has(self.apiGroup) || self.apiGroup == 'kubevirt.io' || self.apiGroup == 'backup.kubevirt.io'"
)
_KIND_FITS_GROUP = (
    "!has(self.apiGroup) || (self.apiGroup == 'kubevirt.io' && self.kind == 'VirtualMachine')"
    " || (self.apiGroup == 'backup.kubevirt.io' && self.kind == 'VirtualMachineBackupTracker')"
)
_KIND_MESSAGE = (
    "kind must be VirtualMachine for kubevirt.io or VirtualMachineBackupTracker for backup.kubevirt.io"
)
_PULL_HAS_TOKEN = (
    "!has(self.mode) || self.mode != 'Pull' || (has(self.tokenSecretRef) && self.tokenSecretRef != \"\")"
)


class VirtualMachineBackupSpec(ApiStruct, kw_only=True):
    """What is backed up, whereto and how."""

    force_full_backup: bool | None = None
    mode: Annotated[str | None, one_of("Push", "Pull")] = None
    pvc_name: str | None = None
    skip_quiesce: bool | None = None
    source: Annotated[
        TypedLocalObjectReference,
        rules(
            ("has(self.apiGroup)", "apiGroup is required"),
            (_KNOWN_GROUP, "apiGroup must be kubevirt.io or backup.kubevirt.io"),
            (_KIND_FITS_GROUP, _KIND_MESSAGE),
            ("self.name != ''", "name is required"),
        ),
    ]
    token_secret_ref: str | None = None
    ttl_duration: Duration | None = None


class BackupVolumeInfo(ApiStruct, kw_only=True):
    """A volume within a backup."""

    data_endpoint: str | None = None
    map_endpoint: str | None = None
    volume_name: str


class VirtualMachineBackupStatus(ApiStruct, kw_only=True):
    """How far the backup is."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    checkpoint_name: str | None = None
    conditions: Annotated[tuple[ObservedCondition, ...], list_map("type")] = ()
    endpoint_cert: str | None = None
    export_uid: str | None = field(default=None, name="exportUID")
    included_volumes: Annotated[tuple[BackupVolumeInfo, ...], ATOMIC] = ()
    type: str | None = None


class VirtualMachineBackup(ApiStruct, kw_only=True):
    """A full or incremental backup of a machine."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        VirtualMachineBackupSpec,
        rules(
            ("self == oldSelf", "spec is immutable after creation"),
            ('has(self.pvcName) && self.pvcName != ""', "pvcName is required"),
            (_PULL_HAS_TOKEN, "tokenSecretRef is required when mode is Pull"),
        ),
    ]
    status: VirtualMachineBackupStatus | None = None


class BackupCheckpoint(ApiStruct, kw_only=True):
    """A point in time from which changed blocks are known."""

    creation_time: Time | None = None
    name: str | None = None
    volumes: Annotated[tuple[BackupVolumeInfo, ...], ATOMIC] = ()


class BackupOptions(ApiStruct, kw_only=True):
    """Body of the `backup` subresource."""

    backup_cert: str | None = None
    backup_key: str | None = None
    backup_name: str | None = None
    backup_start_time: Time | None = None
    ca_cert: str | None = None
    cmd: str | None = None
    export_server_addr: str | None = None
    export_server_name: str | None = None
    incremental: str | None = None
    mode: str | None = None
    skip_quiesce: bool | None = None
    target_path: str | None = None


class VirtualMachineBackupTrackerSpec(ApiStruct, kw_only=True):
    """Whose backups are tracked."""

    source: Annotated[
        TypedLocalObjectReference,
        rules(
            ("has(self.apiGroup) && self.apiGroup == 'kubevirt.io'", "apiGroup must be kubevirt.io"),
            ("self.kind == 'VirtualMachine'", "kind must be VirtualMachine"),
            ("self.name != ''", "name is required"),
        ),
    ]


class VirtualMachineBackupTrackerStatus(ApiStruct, kw_only=True):
    """The checkpoint that the next incremental backup starts from."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    checkpoint_redefinition_required: Annotated[
        bool | None, describe("The guest restarted; its checkpoint must be made known to it again.")
    ] = None
    latest_checkpoint: BackupCheckpoint | None = None


class VirtualMachineBackupTracker(ApiStruct, kw_only=True):
    """Remembers the last checkpoint of a machine, so that backups can be incremental."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        VirtualMachineBackupTrackerSpec, rules(("self == oldSelf", "spec is immutable after creation"))
    ]
    status: VirtualMachineBackupTrackerStatus | None = None
