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
    """What is backed up, whereto and how. No effect: no controller makes backups."""

    force_full_backup: Annotated[
        bool | None, describe("Whether all is backed up even if there is a checkpoint. No effect.")
    ] = None
    mode: Annotated[
        str | None,
        one_of("Push", "Pull"),
        describe("Push writes into the claim; Pull lets a client fetch the data. No effect."),
    ] = None
    pvc_name: Annotated[
        str | None, describe("Claim for the data, or for scratch space in mode Pull; required. No effect.")
    ] = None
    skip_quiesce: Annotated[
        bool | None, describe("Whether the guest's file systems are not frozen. No effect.")
    ] = None
    source: Annotated[
        TypedLocalObjectReference,
        rules(
            ("has(self.apiGroup)", "apiGroup is required"),
            (_KNOWN_GROUP, "apiGroup must be kubevirt.io or backup.kubevirt.io"),
            (_KIND_FITS_GROUP, _KIND_MESSAGE),
            ("self.name != ''", "name is required"),
        ),
        describe(
            "The VirtualMachine, or the VirtualMachineBackupTracker that knows its checkpoint. No effect."
        ),
    ]
    token_secret_ref: Annotated[
        str | None, describe("Secret whose key token clients must show; required in mode Pull. No effect.")
    ] = None
    ttl_duration: Annotated[
        Duration | None, describe("How long a backup in mode Pull can be fetched, such as 2h. No effect.")
    ] = None


class BackupVolumeInfo(ApiStruct, kw_only=True):
    """A volume within a backup."""

    data_endpoint: Annotated[str | None, describe("Address of the volume's data, in mode Pull.")] = None
    map_endpoint: Annotated[str | None, describe("Address of the map of its blocks, in mode Pull.")] = None
    volume_name: Annotated[str, describe("Name of the machine's volume.")]


class VirtualMachineBackupStatus(ApiStruct, kw_only=True):
    """How far the backup is. Never written: no controller makes backups."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    checkpoint_name: Annotated[
        str | None, describe("Checkpoint from which the next incremental backup can start.")
    ] = None
    conditions: Annotated[
        tuple[ObservedCondition, ...],
        list_map("type"),
        describe("Progressing, Complete, Failed and Quiesced."),
    ] = ()
    endpoint_cert: Annotated[
        str | None, describe("Certificate that clients verify the server by, in PEM.")
    ] = None
    export_uid: Annotated[str | None, describe("UID of the export that serves the data.")] = field(
        default=None, name="exportUID"
    )
    included_volumes: Annotated[tuple[BackupVolumeInfo, ...], ATOMIC, describe("Volumes in the backup.")] = ()
    type: Annotated[str | None, describe("Full or Incremental.")] = None


class VirtualMachineBackup(ApiStruct, kw_only=True):
    """A full or incremental backup of a machine. No controller looks at it."""

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

    creation_time: Annotated[Time | None, describe("When the checkpoint was made.")] = None
    name: Annotated[str | None, describe("Name of the checkpoint.")] = None
    volumes: Annotated[
        tuple[BackupVolumeInfo, ...], ATOMIC, describe("Volumes whose changes are known since then.")
    ] = ()


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
    """Whose backups are tracked. No effect: no controller makes backups."""

    source: Annotated[
        TypedLocalObjectReference,
        rules(
            ("has(self.apiGroup) && self.apiGroup == 'kubevirt.io'", "apiGroup must be kubevirt.io"),
            ("self.kind == 'VirtualMachine'", "kind must be VirtualMachine"),
            ("self.name != ''", "name is required"),
        ),
        describe("The VirtualMachine (group kubevirt.io). No effect."),
    ]


class VirtualMachineBackupTrackerStatus(ApiStruct, kw_only=True):
    """The checkpoint that the next incremental backup starts from. Never written."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    checkpoint_redefinition_required: Annotated[
        bool | None, describe("The guest restarted; its checkpoint must be made known to it again.")
    ] = None
    latest_checkpoint: Annotated[BackupCheckpoint | None, describe("The checkpoint of the last backup.")] = (
        None
    )


class VirtualMachineBackupTracker(ApiStruct, kw_only=True):
    """Remembers the last checkpoint of a machine. No controller looks at it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        VirtualMachineBackupTrackerSpec, rules(("self == oldSelf", "spec is immutable after creation"))
    ]
    status: VirtualMachineBackupTrackerStatus | None = None
