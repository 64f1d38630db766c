"""VirtualMachineInstance: a guest that runs or is about to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import Affinity, PodDNSConfig, Toleration, TopologySpreadConstraint
from virtplane.api.kubevirt_v1.claims import VirtualMachineInstanceResourceClaim
from virtplane.api.kubevirt_v1.credentials import AccessCredential
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.networks import Network
from virtplane.api.kubevirt_v1.probes import Probe
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceStatus
from virtplane.api.kubevirt_v1.volumes import UtilityVolume, Volume
from virtplane.api.markers import (
    ATOMIC,
    EMPTY_IS_SET,
    REQUIRED,
    ApiStruct,
    Int64,
    describe,
    list_map,
    mark,
    requested_one_of,
)
from virtplane.api.meta_v1 import ObjectMeta


class VirtualMachineInstanceSpec(ApiStruct, kw_only=True):
    """The guest's hardware, its volumes and networks, and where it may run."""

    access_credentials: Annotated[
        tuple[AccessCredential, ...],
        describe("SSH keys and passwords brought into the guest."),
        ATOMIC,
        mark(maxItems=256),
    ] = ()
    affinity: Affinity | None = None
    architecture: Annotated[
        str | None,
        describe("amd64, arm64 or s390x; guests run on amd64 alone. The installation's when absent."),
    ] = None
    dns_config: PodDNSConfig | None = None
    dns_policy: Annotated[
        str | None,
        requested_one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        describe(
            "The DNS policy of the launcher pod, handed on to the guest by DHCP; ClusterFirst when absent."
        ),
    ] = None
    domain: Annotated[DomainSpec, REQUIRED] = DomainSpec()
    eviction_strategy: Annotated[
        str | None,
        describe(
            "On eviction: LiveMigrate (refused while the guest cannot move), LiveMigrateIfPossible, "
            "External or None (ends it). The installation's when absent."
        ),
        EMPTY_IS_SET,
    ] = None
    hostname: Annotated[str | None, describe("The guest's host name; the instance's name when absent.")] = (
        None
    )
    liveness_probe: Annotated[
        Probe | None, describe("A check of the guest's health that ends the guest when it fails.")
    ] = None
    networks: Annotated[
        tuple[Network, ...],
        mark(maxItems=256),
        describe("Networks by name; interfaces of the domain refer to them."),
    ] = ()
    node_selector: Annotated[Mapping[str, str], describe("Labels that the node must have.")] = field(
        default_factory=dict
    )
    priority_class_name: Annotated[str | None, describe("The priority class of the launcher pod.")] = None
    readiness_probe: Annotated[
        Probe | None, describe("A check of the guest's health; the instance is ready while it succeeds.")
    ] = None
    resource_claims: Annotated[
        tuple[VirtualMachineInstanceResourceClaim, ...],
        describe("Resource claims of the pod, for devices of the guest."),
        list_map("name"),
    ] = ()
    scheduler_name: Annotated[str | None, describe("The scheduler that places the launcher pod.")] = None
    service_account_name: Annotated[
        str | None, describe("The service account of the launcher pod; default when absent.")
    ] = None
    start_strategy: Annotated[
        str | None, describe("Paused: the guest starts paused. There is no other value."), EMPTY_IS_SET
    ] = None
    subdomain: Annotated[
        str | None, describe("With it the guest is known as hostname.subdomain.namespace.svc.")
    ] = None
    termination_grace_period_seconds: Annotated[
        Int64 | None, describe("Seconds from the ACPI power button to the end of the guest; 30 when absent.")
    ] = None
    tolerations: Annotated[
        tuple[Toleration, ...], describe("Taints of nodes that the launcher pod tolerates.")
    ] = ()
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...],
        describe("How evenly launcher pods spread over nodes or zones."),
        list_map("topologyKey", "whenUnsatisfiable"),
    ] = ()
    utility_volumes: Annotated[
        tuple[UtilityVolume, ...],
        describe("Claims that the pod gets beside the guest's disks; they come while the guest runs."),
        list_map("name"),
        mark(maxItems=256),
    ] = ()
    volumes: Annotated[
        tuple[Volume, ...],
        mark(maxItems=256),
        describe("Volumes by name; disks and file systems of the domain refer to them."),
    ] = ()


class VirtualMachineInstance(ApiStruct, kw_only=True):
    """A running (or about to run) guest."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VirtualMachineInstanceSpec, REQUIRED] = VirtualMachineInstanceSpec()
    status: VirtualMachineInstanceStatus = VirtualMachineInstanceStatus()
