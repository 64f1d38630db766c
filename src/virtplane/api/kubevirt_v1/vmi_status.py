"""What is observed of a VirtualMachineInstance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.block_tracking import ChangedBlockTrackingStatus
from virtplane.api.kubevirt_v1.cpu import CPUTopology
from virtplane.api.kubevirt_v1.domain import Machine
from virtplane.api.kubevirt_v1.memory import MemoryStatus
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigrationState
from virtplane.api.markers import (
    ATOMIC,
    NULLABLE,
    ApiStruct,
    Int32,
    Int64,
    Quantity,
    Time,
    UInt32,
    describe,
    mark,
    requested_one_of,
)


class VirtualMachineInstanceGuestOSInfo(ApiStruct, kw_only=True):
    """The guest's operating system, as the guest agent tells."""

    id: str | None = None
    kernel_release: str | None = None
    kernel_version: str | None = None
    machine: str | None = None
    name: str | None = None
    pretty_name: str | None = None
    version: str | None = None
    version_id: str | None = None


class VirtualMachineInstanceNetworkInterface(ApiStruct, kw_only=True):
    """A network card as it is seen from inside and outside."""

    info_source: str | None = None
    interface_name: str | None = None
    ip_address: str | None = None
    ip_addresses: tuple[str, ...] = ()
    link_state: str | None = None
    mac: str | None = None
    name: str | None = None
    pod_interface_name: str | None = None
    queue_count: Int32 | None = None


class InitrdInfo(ApiStruct, kw_only=True):
    """What is known of the initrd booted from."""

    checksum: UInt32 | None = None


class KernelInfo(ApiStruct, kw_only=True):
    """What is known of the kernel booted from."""

    checksum: UInt32 | None = None


class KernelBootStatus(ApiStruct, kw_only=True):
    """Checksums of what was booted directly."""

    initrd_info: InitrdInfo | None = None
    kernel_info: KernelInfo | None = None


class PersistentVolumeClaimInfo(ApiStruct, kw_only=True):
    """What was found out about a claim."""

    access_modes: Annotated[tuple[str, ...], ATOMIC] = ()
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    claim_name: str | None = None
    filesystem_overhead: Annotated[str | None, mark(pattern="^(0(?:\\.\\d{1,3})?|1)$")] = None
    preallocated: bool | None = None
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    volume_mode: Annotated[str | None, requested_one_of("Block", "Filesystem", "FromStorageProfile")] = None


class StorageMigratedVolumeInfo(ApiStruct, kw_only=True):
    """A volume moving from one claim to another."""

    destination_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="destinationPVCInfo")
    source_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="sourcePVCInfo")
    volume_name: str


class VirtualMachineInstancePhaseTransitionTimestamp(ApiStruct, kw_only=True):
    """When a phase was entered."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class TopologyHints(ApiStruct, kw_only=True):
    """Node properties that restrict where the guest can run."""

    tsc_frequency: Int64 | None = None


class ContainerDiskInfo(ApiStruct, kw_only=True):
    """What is known of a container disk's image."""

    checksum: UInt32 | None = None


class HotplugVolumeStatus(ApiStruct, kw_only=True):
    """The pod that holds a hotplugged volume on the node."""

    attach_pod_name: str | None = None
    attach_pod_uid: str | None = field(default=None, name="attachPodUID")


class DomainMemoryDumpInfo(ApiStruct, kw_only=True):
    """A memory dump of this guest."""

    claim_name: str | None = None
    end_timestamp: Time | None = None
    start_timestamp: Time | None = None
    target_file_name: str | None = None


class VolumeStatus(ApiStruct, kw_only=True):
    """What became of a volume."""

    container_disk_volume: ContainerDiskInfo | None = None
    hotplug_volume: HotplugVolumeStatus | None = None
    memory_dump_volume: DomainMemoryDumpInfo | None = None
    message: str | None = None
    name: str
    persistent_volume_claim_info: PersistentVolumeClaimInfo | None = None
    phase: str | None = None
    reason: str | None = None
    size: Int64 | None = None
    target: str


class VirtualMachineInstanceStatus(ApiStruct, kw_only=True):
    """What is observed of the guest."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    vsockcid: Annotated[UInt32 | None, describe("The guest's VSOCK address.")] = field(
        default=None, name="VSOCKCID"
    )
    active_pods: Mapping[str, str] = field(default_factory=dict)
    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, NULLABLE] = None
    conditions: Annotated[
        tuple[Condition, ...], describe("Ready, LiveMigratable, Paused, AgentConnected, ...")
    ] = ()
    current_cpu_topology: CPUTopology | None = field(default=None, name="currentCPUTopology")
    evacuation_node_name: str | None = None
    fs_freeze_status: str | None = None
    guest_os_info: VirtualMachineInstanceGuestOSInfo | None = field(default=None, name="guestOSInfo")
    interfaces: Annotated[
        tuple[VirtualMachineInstanceNetworkInterface, ...], describe("Network cards with their addresses.")
    ] = ()
    kernel_boot_status: KernelBootStatus | None = None
    launcher_container_image_version: str | None = None
    machine: Machine | None = None
    memory: MemoryStatus | None = None
    migrated_volumes: Annotated[tuple[StorageMigratedVolumeInfo, ...], ATOMIC] = ()
    migration_method: str | None = None
    migration_state: VirtualMachineInstanceMigrationState | None = None
    migration_transport: str | None = None
    node_name: Annotated[str | None, describe("The node on which the guest runs.")] = None
    phase: Annotated[
        str | None, describe("Pending, Scheduling, Scheduled, Running, Succeeded, Failed or Unknown.")
    ] = None
    phase_transition_timestamps: Annotated[
        tuple[VirtualMachineInstancePhaseTransitionTimestamp, ...], ATOMIC
    ] = ()
    qos_class: Annotated[str | None, requested_one_of("BestEffort", "Burstable", "Guaranteed")] = None
    reason: str | None = None
    runtime_user: Int64 | None = None
    selinux_context: str | None = None
    topology_hints: TopologyHints | None = None
    virtual_machine_revision_name: str | None = None
    volume_status: Annotated[tuple[VolumeStatus, ...], ATOMIC] = ()
