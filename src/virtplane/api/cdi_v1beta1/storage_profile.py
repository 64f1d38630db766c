"""StorageProfiles: what a storage class is good for."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, mark, one_of, rules
from virtplane.api.meta_v1 import ObjectMeta

_ACCESS_MODES = rules(
    (
        "self.all(am, am in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])",
        "Illegal AccessMode",
    )
)


class ClaimPropertySet(ApiStruct, kw_only=True):
    """A volume mode, and the access modes that volumes have with it; the best set comes first."""

    access_modes: Annotated[tuple[str, ...], mark(maxItems=4), _ACCESS_MODES]
    volume_mode: Annotated[str, one_of("Block", "Filesystem")]


ClaimPropertySets = Annotated[tuple[ClaimPropertySet, ...], mark(maxItems=8)]


class StorageProfileSpec(ApiStruct, kw_only=True):
    """What an administrator wants otherwise than the table of provisioners says."""

    claim_property_sets: ClaimPropertySets = ()
    clone_strategy: str | None = None
    """``copy``, ``snapshot`` or ``csi-clone``."""
    data_import_cron_source_format: str | None = None
    """``pvc`` or ``snapshot``."""
    snapshot_class: str | None = None


class StorageProfileStatus(ApiStruct, kw_only=True):
    """What holds: the spec, and where it is silent the table of provisioners."""

    claim_property_sets: ClaimPropertySets = ()
    clone_strategy: str | None = None
    conditions: tuple[HeartbeatCondition, ...] = ()
    data_import_cron_source_format: str | None = None
    provisioner: str | None = None
    snapshot_class: str | None = None
    storage_class: str | None = None


class StorageProfile(ApiStruct, kw_only=True):
    """What a storage class is good for; it has the name of the class."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[StorageProfileSpec, REQUIRED] = StorageProfileSpec()
    status: StorageProfileStatus = StorageProfileStatus()
