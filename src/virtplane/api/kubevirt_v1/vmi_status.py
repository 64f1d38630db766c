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
    """The guest's operating system, as its agent tells."""

    id: Annotated[str | None, describe("Its short name, for example debian.")] = None
    kernel_release: Annotated[str | None, describe("The kernel's release, for example 6.1.0-18-amd64.")] = (
        None
    )
    kernel_version: Annotated[str | None, describe("The kernel's build.")] = None
    machine: Annotated[str | None, describe("The hardware, for example x86_64.")] = None
    name: Annotated[str | None, describe("Its name.")] = None
    pretty_name: Annotated[str | None, describe("Its name with the version.")] = None
    version: Annotated[str | None, describe("Its version in words.")] = None
    version_id: Annotated[str | None, describe("Its version, for example 12.")] = None


class VirtualMachineInstanceNetworkInterface(ApiStruct, kw_only=True):
    """A network card, as seen by guest, domain and pod."""

    info_source: Annotated[str | None, describe("Who tells of it: domain, guest-agent, multus-status.")] = (
        None
    )
    interface_name: Annotated[str | None, describe("The card's name in the guest.")] = None
    ip_address: Annotated[str | None, describe("The first of ipAddresses.")] = None
    ip_addresses: Annotated[
        tuple[str, ...], describe("Addresses of the card; those by which the cluster knows it come first.")
    ] = ()
    link_state: Annotated[str | None, describe("up or down.")] = None
    mac: Annotated[str | None, describe("The card's address.")] = None
    name: Annotated[
        str | None, describe("The interface of the spec; absent for one that only the agent tells of.")
    ] = None
    pod_interface_name: Annotated[str | None, describe("The network interface of the pod.")] = None
    queue_count: Annotated[Int32 | None, describe("Queues of the card.")] = None


class InitrdInfo(ApiStruct, kw_only=True):
    """The initrd that was booted."""

    checksum: Annotated[UInt32 | None, describe("Its CRC-32. Nothing writes it yet.")] = None


class KernelInfo(ApiStruct, kw_only=True):
    """The kernel that was booted."""

    checksum: Annotated[UInt32 | None, describe("Its CRC-32. Nothing writes it yet.")] = None


class KernelBootStatus(ApiStruct, kw_only=True):
    """What was booted from outside the guest's disks."""

    initrd_info: InitrdInfo | None = None
    kernel_info: KernelInfo | None = None


class PersistentVolumeClaimInfo(ApiStruct, kw_only=True):
    """What virt-controller found out about a claim."""

    access_modes: Annotated[tuple[str, ...], describe("Access modes of the claim."), ATOMIC] = ()
    capacity: Annotated[Mapping[str, Quantity], describe("The claim's size.")] = field(default_factory=dict)
    claim_name: Annotated[str | None, describe("The claim's name.")] = None
    filesystem_overhead: Annotated[
        str | None,
        describe("The share of the volume that stays free of disk images, from 0 to 1."),
        mark(pattern="^(0(?:\\.\\d{1,3})?|1)$"),
    ] = None
    preallocated: Annotated[bool | None, describe("All blocks of the claim are allocated, and stay so.")] = (
        None
    )
    requests: Annotated[Mapping[str, Quantity], describe("The size that the claim asks for.")] = field(
        default_factory=dict
    )
    volume_mode: Annotated[
        str | None,
        describe("Block or Filesystem."),
        requested_one_of("Block", "Filesystem", "FromStorageProfile"),
    ] = None


class StorageMigratedVolumeInfo(ApiStruct, kw_only=True):
    """A volume moving from one claim to another."""

    destination_pvc_info: Annotated[
        PersistentVolumeClaimInfo | None, describe("The claim that the volume goes to.")
    ] = field(default=None, name="destinationPVCInfo")
    source_pvc_info: Annotated[
        PersistentVolumeClaimInfo | None, describe("The claim that the volume leaves.")
    ] = field(default=None, name="sourcePVCInfo")
    volume_name: Annotated[str, describe("The volume.")]


class VirtualMachineInstancePhaseTransitionTimestamp(ApiStruct, kw_only=True):
    """When a phase was entered."""

    phase: Annotated[str | None, describe("The phase.")] = None
    phase_transition_timestamp: Annotated[Time | None, describe("When it was entered.")] = None


class TopologyHints(ApiStruct, kw_only=True):
    """Node properties that restrict where the guest can run."""

    tsc_frequency: Annotated[
        Int64 | None, describe("The frequency of the guest's TSC in Hz, which the node must offer.")
    ] = None


class ContainerDiskInfo(ApiStruct, kw_only=True):
    """What is known of a container disk's image."""

    checksum: Annotated[UInt32 | None, describe("The disk's CRC-32. Nothing writes it yet.")] = None


class HotplugVolumeStatus(ApiStruct, kw_only=True):
    """The attachment pod that brings a hotplugged volume."""

    attach_pod_name: Annotated[str | None, describe("Its name.")] = None
    attach_pod_uid: Annotated[str | None, describe("Its uid, once it is ready.")] = field(
        default=None, name="attachPodUID"
    )


class DomainMemoryDumpInfo(ApiStruct, kw_only=True):
    """A dump of the guest's memory."""

    claim_name: Annotated[str | None, describe("The claim into which it is written.")] = None
    end_timestamp: Annotated[Time | None, describe("When it ended.")] = None
    start_timestamp: Annotated[Time | None, describe("When it began.")] = None
    target_file_name: Annotated[str | None, describe("Its file in the claim.")] = None


class VolumeStatus(ApiStruct, kw_only=True):
    """What became of a volume."""

    container_disk_volume: ContainerDiskInfo | None = None
    hotplug_volume: HotplugVolumeStatus | None = None
    memory_dump_volume: DomainMemoryDumpInfo | None = None
    message: Annotated[str | None, describe("The reason in words.")] = None
    name: Annotated[str, describe("The volume.")]
    persistent_volume_claim_info: PersistentVolumeClaimInfo | None = None
    phase: Annotated[
        str | None,
        describe(
            "Of hotplugged volumes: Pending, Bound, AttachedToNode, MountedToPod, Ready, Detaching, "
            "UnMountedFromPod, MemoryDump..."
        ),
    ] = None
    reason: Annotated[str | None, describe("Why it is in this phase.")] = None
    size: Annotated[Int64 | None, describe("Bytes. Nothing writes it yet.")] = None
    target: Annotated[str, describe("The disk's name in the domain, for example vda.")]


class VirtualMachineInstanceStatus(ApiStruct, kw_only=True):
    """What is observed of the guest, written by virt-controller and virt-handler."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    vsockcid: Annotated[
        UInt32 | None, describe("The guest's VSOCK address, which is its own in the cluster.")
    ] = field(default=None, name="VSOCKCID")
    active_pods: Annotated[
        Mapping[str, str], describe("Nodes of launcher pods that have not ended, by the uid of the pod.")
    ] = field(default_factory=dict)
    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, NULLABLE] = None
    conditions: Annotated[
        tuple[Condition, ...],
        describe(
            "Ready, Synchronized, AgentConnected, Paused, LiveMigratable, DataVolumesReady, Provisioning, ..."
        ),
    ] = ()
    current_cpu_topology: Annotated[
        CPUTopology | None, describe("Sockets, cores and threads that the guest has now.")
    ] = field(default=None, name="currentCPUTopology")
    evacuation_node_name: Annotated[
        str | None, describe("The node that the guest is to leave, since somebody evicts its pod.")
    ] = None
    fs_freeze_status: Annotated[str | None, describe("frozen while the guest's file systems are frozen.")] = (
        None
    )
    guest_os_info: VirtualMachineInstanceGuestOSInfo | None = field(default=None, name="guestOSInfo")
    interfaces: Annotated[
        tuple[VirtualMachineInstanceNetworkInterface, ...], describe("Network cards with their addresses.")
    ] = ()
    kernel_boot_status: KernelBootStatus | None = None
    launcher_container_image_version: Annotated[
        str | None, describe("The image of the launcher's container.")
    ] = None
    machine: Annotated[Machine | None, describe("The machine type of the running guest.")] = None
    memory: MemoryStatus | None = None
    migrated_volumes: Annotated[
        tuple[StorageMigratedVolumeInfo, ...], describe("Volumes that move to other claims."), ATOMIC
    ] = ()
    migration_method: Annotated[
        str | None, describe("BlockMigration if disks would have to be copied, else LiveMigration.")
    ] = None
    migration_state: VirtualMachineInstanceMigrationState | None = None
    migration_transport: Annotated[str | None, describe("Unix: how nodes would talk during migrations.")] = (
        None
    )
    node_name: Annotated[str | None, describe("The node on which the guest runs.")] = None
    phase: Annotated[
        str | None,
        describe("Pending, Scheduling, Scheduled, Running, Succeeded, Failed, WaitingForSync or Unknown."),
    ] = None
    phase_transition_timestamps: Annotated[
        tuple[VirtualMachineInstancePhaseTransitionTimestamp, ...],
        describe("When each phase was entered."),
        ATOMIC,
    ] = ()
    qos_class: Annotated[
        str | None,
        describe("The quality of service of the launcher pod: BestEffort, Burstable or Guaranteed."),
        requested_one_of("BestEffort", "Burstable", "Guaranteed"),
    ] = None
    reason: Annotated[str | None, describe("Why the guest is in its phase. Nothing writes it yet.")] = None
    runtime_user: Annotated[
        Int64 | None, describe("The user id as which the launcher runs: 107, or 0 with the gate Root.")
    ] = None
    selinux_context: Annotated[
        str | None, describe('The SELinux context of the launcher; "none" without SELinux.')
    ] = None
    topology_hints: TopologyHints | None = None
    virtual_machine_revision_name: Annotated[
        str | None, describe("The ControllerRevision of the VirtualMachine that the instance is made of.")
    ] = None
    volume_status: Annotated[tuple[VolumeStatus, ...], describe("What became of each volume."), ATOMIC] = ()
