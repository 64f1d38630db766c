"""VirtualMachineInstance: a guest that runs or is about to."""

from __future__ import annotations

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
    ApiStruct,
    Int64,
    Metadata,
    describe,
    list_map,
    mark,
    requested_one_of,
)


class VirtualMachineInstanceSpec(ApiStruct, kw_only=True):
    """The guest's hardware, its volumes and networks, and where it may run."""

    access_credentials: Annotated[list[AccessCredential], ATOMIC, mark(maxItems=256)] = field(
        default_factory=list
    )
    affinity: Affinity | None = None
    architecture: Annotated[str | None, describe("The guest's architecture: amd64, arm64 or s390x.")] = None
    dns_config: PodDNSConfig | None = None
    dns_policy: Annotated[
        str | None,
        requested_one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        describe("The DNS policy of the launcher pod, handed on to the guest by DHCP."),
    ] = None
    domain: Annotated[DomainSpec, describe("The virtual hardware.")]
    eviction_strategy: Annotated[
        str | None, describe("What an eviction does: LiveMigrate, LiveMigrateIfPossible, None or External.")
    ] = None
    hostname: Annotated[str | None, describe("The guest's host name; the instance's name when absent.")] = (
        None
    )
    liveness_probe: Probe | None = None
    networks: Annotated[
        list[Network],
        mark(maxItems=256),
        describe("Networks by name; interfaces of the domain refer to them."),
    ] = field(default_factory=list)
    node_selector: Annotated[dict[str, str], describe("Labels that the node must have.")] = field(
        default_factory=dict
    )
    priority_class_name: Annotated[str | None, describe("The priority class of the launcher pod.")] = None
    readiness_probe: Probe | None = None
    resource_claims: Annotated[list[VirtualMachineInstanceResourceClaim], list_map("name")] = field(
        default_factory=list
    )
    scheduler_name: Annotated[str | None, describe("The scheduler that places the launcher pod.")] = None
    service_account_name: Annotated[str | None, describe("The service account of the launcher pod.")] = None
    start_strategy: Annotated[str | None, describe("Paused: the guest starts paused.")] = None
    subdomain: Annotated[
        str | None, describe("With it the guest is known as hostname.subdomain.namespace.svc.")
    ] = None
    termination_grace_period_seconds: Annotated[
        Int64 | None, describe("Seconds from the ACPI power button to the end of the guest; 30 when absent.")
    ] = None
    tolerations: list[Toleration] = field(default_factory=list)
    topology_spread_constraints: Annotated[
        list[TopologySpreadConstraint], list_map("topologyKey", "whenUnsatisfiable")
    ] = field(default_factory=list)
    utility_volumes: Annotated[list[UtilityVolume], list_map("name"), mark(maxItems=256)] = field(
        default_factory=list
    )
    volumes: Annotated[
        list[Volume],
        mark(maxItems=256),
        describe("Volumes by name; disks and file systems of the domain refer to them."),
    ] = field(default_factory=list)


class VirtualMachineInstance(ApiStruct, kw_only=True):
    """A running (or about to run) guest."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = field(default_factory=dict)
    spec: VirtualMachineInstanceSpec
    status: VirtualMachineInstanceStatus | None = None
