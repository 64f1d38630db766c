"""HostPathProvisioner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.core_v1 import NodePlacement, PersistentVolumeClaimSpec
from virtplane.api.markers import ATOMIC, SET, ApiStruct, Int, Quantity, Time, describe, list_map
from virtplane.api.meta_v1 import ObjectMeta


class StoragePool(ApiStruct, kw_only=True):
    """A folder of each node, or a volume that is mounted there."""

    name: Annotated[
        str,
        describe(
            "Name by which StorageClasses mean the pool (parameter storagePool); at most 50 characters."
        ),
    ]
    overlay_class_name: Annotated[
        str | None,
        describe(
            "StorageClass of a pool that all nodes share; hpp-overlay by default. Without template it"
            " makes the path shared."
        ),
    ] = None
    path: Annotated[str, describe("Folder on the nodes, made if it is missing; at most 255 characters.")]
    pvc_template: Annotated[
        PersistentVolumeClaimSpec | None,
        describe(
            "Claims that hold the pool, one for each node; one for all if ReadWriteMany is among its modes."
        ),
    ] = None
    snapshot_provider: Annotated[
        str | None,
        describe(
            "reflink lets the pool's volumes have snapshots, with the gate Snapshotting; absent for none."
        ),
    ] = None


class PathConfig(ApiStruct, kw_only=True):
    """The folder of the legacy provisioner, which the CSI driver uses as the pool legacy."""

    path: Annotated[str | None, describe("Folder on the nodes, made if it is missing.")] = None
    use_naming_prefix: Annotated[
        bool | None,
        describe("Whether folders of the legacy provisioner begin with the claim's name; false by default."),
    ] = None


class HostPathProvisionerSpec(ApiStruct, kw_only=True):
    """The pools, and the nodes that have them. Either pathConfig or storagePools is set."""

    feature_gates: Annotated[
        tuple[str, ...], SET, describe("Snapshotting adds the CSI snapshotter. Others are ignored.")
    ] = ()
    image_pull_policy: Annotated[
        str | None, describe("When images of all containers are pulled; IfNotPresent by default.")
    ] = None
    path_config: PathConfig | None = None
    storage_pools: Annotated[
        tuple[StoragePool, ...], ATOMIC, describe("The pools; names and paths differ.")
    ] = ()
    workload: Annotated[NodePlacement, describe("Nodes that have the pools; by default all.")] = (
        NodePlacement()
    )


class ClaimCondition(ApiStruct, kw_only=True):
    """A condition of a claim."""

    last_probe_time: Annotated[Time | None, describe("When the condition was last looked at.")] = None
    last_transition_time: Annotated[Time | None, describe("When the status last changed.")] = None
    message: Annotated[str | None, describe("What is the matter, for people.")] = None
    reason: Annotated[str | None, describe("Why, in one word.")] = None
    status: Annotated[str, describe("True, False or Unknown.")]
    type: Annotated[str, describe("Which aspect it is, such as Resizing.")]


class ModifyVolumeStatus(ApiStruct, kw_only=True):
    """The state of a change of a volume's attributes."""

    status: Annotated[str, describe("Pending, InProgress or Infeasible.")]
    target_volume_attributes_class_name: Annotated[
        str | None, describe("The class that the volume is to have.")
    ] = None


class CoreClaimStatus(ApiStruct, kw_only=True):
    """The status of a claim, as the claim has it."""

    access_modes: Annotated[tuple[str, ...], ATOMIC, describe("Access modes that the volume has.")] = ()
    allocated_resource_statuses: Annotated[
        Mapping[str, str], describe("How far growing is, by resource.")
    ] = field(default_factory=dict)
    allocated_resources: Annotated[
        Mapping[str, Quantity], describe("Sizes that are being grown to, by resource.")
    ] = field(default_factory=dict)
    capacity: Annotated[Mapping[str, Quantity], describe("Size of the volume, under storage.")] = field(
        default_factory=dict
    )
    conditions: Annotated[
        tuple[ClaimCondition, ...],
        list_map("type"),
        describe("What is being done to the claim, such as Resizing."),
    ] = ()
    current_volume_attributes_class_name: Annotated[
        str | None, describe("The class of attributes that the volume has.")
    ] = None
    modify_volume_status: ModifyVolumeStatus | None = None
    phase: Annotated[str | None, describe("Pending, Bound or Lost.")] = None


class ClaimStatus(ApiStruct, kw_only=True):
    """The status of one of a pool's claims."""

    name: Annotated[str, describe("Name of the claim.")]
    status: CoreClaimStatus


class StoragePoolStatus(ApiStruct, kw_only=True):
    """The state of a pool."""

    claim_statuses: Annotated[
        tuple[ClaimStatus, ...], ATOMIC, describe("The claims that hold the pool.")
    ] = ()
    current_ready: Annotated[Int | None, describe("Nodes on which the pool is mounted.")] = None
    desired_ready: Annotated[Int | None, describe("Nodes on which the pool is to be mounted.")] = None
    name: Annotated[str, describe("Name of the pool.")]
    phase: Annotated[str, describe("Ready once the pool can be used.")]


class HostPathProvisionerStatus(ApiStruct, kw_only=True):
    """What is deployed, and whether it works, written by the operator."""

    conditions: Annotated[
        tuple[HeartbeatCondition, ...],
        ATOMIC,
        describe("Available, Progressing and Degraded; StoragePoolFull while a pool is full."),
    ] = ()
    observed_version: Annotated[
        str | None, describe("The installed version, once the driver is ready on all nodes.")
    ] = None
    operator_version: Annotated[str | None, describe("Version of the operator.")] = None
    storage_pool_statuses: Annotated[
        tuple[StoragePoolStatus, ...], ATOMIC, describe("The state of each pool.")
    ] = ()
    target_version: Annotated[str | None, describe("The version that is being installed.")] = None


class HostPathProvisioner(ApiStruct, kw_only=True):
    """Storage in folders of nodes: pools, and a CSI driver that makes volumes in them."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: HostPathProvisionerSpec = HostPathProvisionerSpec()
    status: HostPathProvisionerStatus = HostPathProvisionerStatus()
