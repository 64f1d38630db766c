"""HostPathProvisioner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.core_v1 import NodePlacement, PersistentVolumeClaimSpec
from virtplane.api.markers import ATOMIC, SET, ApiStruct, Int, Quantity, Time, list_map
from virtplane.api.meta_v1 import ObjectMeta


class StoragePool(ApiStruct, kw_only=True):
    """A folder of each node, or a volume that is mounted there."""

    name: str
    overlay_class_name: str | None = None
    path: str
    pvc_template: PersistentVolumeClaimSpec | None = None
    snapshot_provider: str | None = None


class PathConfig(ApiStruct, kw_only=True):
    """The folder of the legacy provisioner, which the CSI driver uses as well."""

    path: str | None = None
    use_naming_prefix: bool | None = None


class HostPathProvisionerSpec(ApiStruct, kw_only=True):
    """The pools, and the nodes that have them."""

    feature_gates: Annotated[tuple[str, ...], SET] = ()
    image_pull_policy: str | None = None
    path_config: PathConfig | None = None
    storage_pools: Annotated[tuple[StoragePool, ...], ATOMIC] = ()
    workload: NodePlacement = NodePlacement()


class ClaimCondition(ApiStruct, kw_only=True):
    """A condition of a claim."""

    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class ModifyVolumeStatus(ApiStruct, kw_only=True):
    """The state of a change of a volume's attributes."""

    status: str
    target_volume_attributes_class_name: str | None = None


class CoreClaimStatus(ApiStruct, kw_only=True):
    """The status of a claim."""

    access_modes: Annotated[tuple[str, ...], ATOMIC] = ()
    allocated_resource_statuses: Mapping[str, str] = field(default_factory=dict)
    allocated_resources: Mapping[str, Quantity] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    conditions: Annotated[tuple[ClaimCondition, ...], list_map("type")] = ()
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None
    phase: str | None = None


class ClaimStatus(ApiStruct, kw_only=True):
    """The status of one of a pool's claims."""

    name: str
    status: CoreClaimStatus


class StoragePoolStatus(ApiStruct, kw_only=True):
    """The state of a pool."""

    claim_statuses: Annotated[tuple[ClaimStatus, ...], ATOMIC] = ()
    current_ready: Int | None = None
    desired_ready: Int | None = None
    name: str
    phase: str


class HostPathProvisionerStatus(ApiStruct, kw_only=True):
    """What is deployed, and whether it works."""

    conditions: Annotated[tuple[HeartbeatCondition, ...], ATOMIC] = ()
    observed_version: str | None = None
    operator_version: str | None = None
    storage_pool_statuses: Annotated[tuple[StoragePoolStatus, ...], ATOMIC] = ()
    target_version: str | None = None


class HostPathProvisioner(ApiStruct, kw_only=True):
    """Storage in folders of nodes: pools, and a CSI driver that makes volumes in them."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: HostPathProvisionerSpec = HostPathProvisionerSpec()
    status: HostPathProvisionerStatus = HostPathProvisionerStatus()
