"""StorageProfiles: what a storage class is good for."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, describe, mark, one_of, rules
from virtplane.api.meta_v1 import ObjectMeta

_ACCESS_MODES = rules(
    (
        "self.all(am, am in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])",
        "Illegal AccessMode",
    )
)


class ClaimPropertySet(ApiStruct, kw_only=True):
    """A volume mode, and the access modes that volumes have with it; the best set comes first."""

    access_modes: Annotated[
        tuple[str, ...],
        mark(maxItems=4),
        _ACCESS_MODES,
        describe("ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod."),
    ]
    volume_mode: Annotated[str, one_of("Block", "Filesystem"), describe("Filesystem or Block.")]


ClaimPropertySets = Annotated[tuple[ClaimPropertySet, ...], mark(maxItems=8)]


class StorageProfileSpec(ApiStruct, kw_only=True):
    """What an administrator wants otherwise than what is known of the provisioner."""

    claim_property_sets: Annotated[
        ClaimPropertySets, describe("Modes that claims get, the best first; in place of all that are known.")
    ] = ()
    clone_strategy: Annotated[
        str | None, describe("How claims of the class are cloned: copy, snapshot or csi-clone.")
    ] = None
    data_import_cron_source_format: Annotated[
        str | None, describe("How imports of crons are kept: pvc or snapshot.")
    ] = None
    snapshot_class: Annotated[
        str | None, describe("VolumeSnapshotClass for clones and imports; it must exist.")
    ] = None


class StorageProfileStatus(ApiStruct, kw_only=True):
    """What holds: the spec, else what is known of the provisioner. cdi-deployment writes it."""

    claim_property_sets: Annotated[
        ClaimPropertySets, describe("Modes that claims of the class can have, the best first.")
    ] = ()
    clone_strategy: Annotated[
        str | None, describe("How claims of the class are cloned: copy, snapshot or csi-clone.")
    ] = None
    conditions: Annotated[
        tuple[HeartbeatCondition, ...],
        describe("Recognized: whether the provisioner and its parameters are known."),
    ] = ()
    data_import_cron_source_format: Annotated[
        str | None, describe("How imports of crons are kept: pvc or snapshot.")
    ] = None
    provisioner: Annotated[str | None, describe("Provisioner of the class.")] = None
    snapshot_class: Annotated[
        str | None,
        describe("VolumeSnapshotClass for clones and imports, if there is one of the provisioner's."),
    ] = None
    storage_class: Annotated[str | None, describe("Name of the class.")] = None


class StorageProfile(ApiStruct, kw_only=True):
    """What a storage class is good for; it has the name of the class."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[StorageProfileSpec, REQUIRED] = StorageProfileSpec()
    status: StorageProfileStatus = StorageProfileStatus()
