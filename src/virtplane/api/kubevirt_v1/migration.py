"""VirtualMachineInstanceMigration and the state that both ends share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.migration_configuration import VMIMConfigurationOptions
from virtplane.api.markers import ATOMIC, NULLABLE, REQUIRED, ApiStruct, Int, Quantity, Time, describe
from virtplane.api.meta_v1 import ObjectMeta


class VirtualMachineInstanceMigrationTarget(ApiStruct, kw_only=True):
    """The migration by which a guest enters this cluster. No effect yet."""

    migration_id: Annotated[str, describe("The name of the migration that both clusters use.")] = field(
        name="migrationID"
    )


class VirtualMachineInstanceMigrationSource(ApiStruct, kw_only=True):
    """Where a guest that leaves this cluster goes. No effect yet."""

    connect_url: Annotated[str, describe("Where the other cluster listens.")] = field(name="connectURL")
    migration_id: Annotated[str, describe("The name of the migration that both clusters use.")] = field(
        name="migrationID"
    )


class VirtualMachineInstanceMigrationSpec(ApiStruct, kw_only=True):
    """Which guest moves, and whether it leaves or enters this cluster."""

    added_node_selector: Annotated[
        Mapping[str, str],
        describe("Labels that the target's node must have, beside those that the instance asks for."),
    ] = field(default_factory=dict)
    priority: Annotated[
        str | None,
        describe("system-critical, user-triggered or system-maintenance; virt-controller alone sets it."),
    ] = None
    receive: VirtualMachineInstanceMigrationTarget | None = None
    send_to: VirtualMachineInstanceMigrationSource | None = None
    vmi_name: Annotated[str | None, describe("The instance to migrate, of the same namespace.")] = None


class VirtualMachineInstanceMigrationSourceState(ApiStruct, kw_only=True):
    """The end that the guest leaves."""

    domain_name: Annotated[str | None, describe("The domain of the guest.")] = None
    domain_namespace: Annotated[str | None, describe("The namespace of the instance.")] = None
    migration_uid: Annotated[str | None, describe("The uid of this end's migration.")] = field(
        default=None, name="migrationUID"
    )
    node: Annotated[str | None, describe("The node that the guest leaves.")] = None
    node_selectors: Annotated[Mapping[str, str], describe("Labels that the guest's node must have.")] = field(
        default_factory=dict
    )
    persistent_state_pvc_name: Annotated[
        str | None, describe("The claim with the state of firmware and TPM.")
    ] = field(default=None, name="persistentStatePVCName")
    pod: Annotated[str | None, describe("The launcher that the guest leaves.")] = None
    selinux_context: Annotated[str | None, describe("The SELinux context of that launcher.")] = None
    sync_address: Annotated[str | None, describe("Where this cluster listens for the other.")] = None
    virtual_machine_instance_uid: Annotated[str | None, describe("The uid of the instance.")] = field(
        default=None, name="virtualMachineInstanceUID"
    )


class VirtualMachineInstanceMigrationTargetState(ApiStruct, kw_only=True):
    """The end that the guest enters."""

    attachment_pod_uid: Annotated[str | None, describe("The uid of the attachment pod there.")] = field(
        default=None, name="attachmentPodUID"
    )
    cpu_set: Annotated[tuple[Int, ...], describe("CPUs of the node for the guest."), ATOMIC] = ()
    direct_migration_node_ports: Annotated[
        Mapping[str, Int], describe("Ports of the node, each with what it leads to.")
    ] = field(default_factory=dict)
    domain_detected: Annotated[bool | None, describe("Whether the guest has arrived.")] = None
    domain_name: Annotated[str | None, describe("The domain of the guest.")] = None
    domain_namespace: Annotated[str | None, describe("The namespace of the instance.")] = None
    domain_ready_timestamp: Annotated[Time | None, describe("When the guest ran there.")] = None
    migration_uid: Annotated[str | None, describe("The uid of this end's migration.")] = field(
        default=None, name="migrationUID"
    )
    node: Annotated[str | None, describe("The node that the guest enters.")] = None
    node_address: Annotated[str | None, describe("The address of that node.")] = None
    node_topology: Annotated[str | None, describe("CPUs and NUMA nodes of that node, as JSON.")] = None
    persistent_state_pvc_name: Annotated[
        str | None, describe("The claim for the state of firmware and TPM.")
    ] = field(default=None, name="persistentStatePVCName")
    pod: Annotated[str | None, describe("The launcher that the guest enters.")] = None
    selinux_context: Annotated[str | None, describe("The SELinux context of that launcher.")] = None
    sync_address: Annotated[str | None, describe("Where this cluster listens for the other.")] = None
    virtual_machine_instance_uid: Annotated[str | None, describe("The uid of the instance.")] = field(
        default=None, name="virtualMachineInstanceUID"
    )


class VirtualMachineInstanceMigrationState(ApiStruct, kw_only=True):
    """A migration of the guest, as virt-controller and both nodes report it."""

    abort_requested: Annotated[bool | None, describe("Somebody asked to end the migration early.")] = None
    abort_status: Annotated[str | None, describe("Succeeded, Failed or Aborting.")] = None
    completed: Annotated[bool | None, describe("Whether the migration has ended.")] = None
    end_timestamp: Annotated[Time | None, describe("When the migration ended."), NULLABLE] = None
    failed: Annotated[bool | None, describe("Whether the migration failed.")] = None
    failure_reason: Annotated[str | None, describe("Why the migration failed.")] = None
    migration_configuration: VMIMConfigurationOptions | None = None
    migration_network_type: Annotated[
        str | None, describe("Whether it takes the Pod network or a network for Migration.")
    ] = None
    migration_policy_name: Annotated[str | None, describe("The MigrationPolicy whose settings are used.")] = (
        None
    )
    migration_uid: Annotated[str | None, describe("The uid of the VirtualMachineInstanceMigration.")] = None
    mode: Annotated[str | None, describe("PreCopy, PostCopy or Paused.")] = None
    source_node: Annotated[str | None, describe("The node that the guest leaves.")] = None
    source_persistent_state_pvc_name: Annotated[
        str | None, describe("The claim with the state of firmware and TPM.")
    ] = field(default=None, name="sourcePersistentStatePVCName")
    source_pod: Annotated[str | None, describe("The launcher that the guest leaves.")] = None
    source_state: VirtualMachineInstanceMigrationSourceState | None = None
    start_timestamp: Annotated[Time | None, describe("When the guest began to move."), NULLABLE] = None
    target_attachment_pod_uid: Annotated[
        str | None, describe("The uid of the attachment pod on the target's node.")
    ] = field(default=None, name="targetAttachmentPodUID")
    target_cpu_set: Annotated[
        tuple[Int, ...], describe("CPUs of the target's node for the guest."), ATOMIC
    ] = field(default=(), name="targetCPUSet")
    target_direct_migration_node_ports: Annotated[
        Mapping[str, Int], describe("Ports of the target's node, each with what it leads to.")
    ] = field(default_factory=dict)
    target_memory_overhead: Annotated[
        Quantity | None, describe("What the target's pod asks for beside the guest's memory.")
    ] = None
    target_node: Annotated[str | None, describe("The node that the guest enters.")] = None
    target_node_address: Annotated[str | None, describe("The address of that node.")] = None
    target_node_domain_detected: Annotated[bool | None, describe("Whether the guest has arrived.")] = None
    target_node_domain_ready_timestamp: Annotated[Time | None, describe("When the guest ran there.")] = None
    target_node_topology: Annotated[str | None, describe("CPUs and NUMA nodes of that node, as JSON.")] = None
    target_persistent_state_pvc_name: Annotated[
        str | None, describe("The claim for the state of firmware and TPM.")
    ] = field(default=None, name="targetPersistentStatePVCName")
    target_pod: Annotated[str | None, describe("The launcher that the guest enters.")] = None
    target_state: VirtualMachineInstanceMigrationTargetState | None = None


class VirtualMachineInstanceMigrationPhaseTransitionTimestamp(ApiStruct, kw_only=True):
    """When a phase was entered."""

    phase: Annotated[str | None, describe("The phase.")] = None
    phase_transition_timestamp: Annotated[Time | None, describe("When it was entered.")] = None


class VirtualMachineInstanceMigrationStatus(ApiStruct, kw_only=True):
    """How far the migration is, as virt-controller tells."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: Annotated[
        tuple[Condition, ...], describe("migrationAbortRequested, migrationRejectedByResourceQuota.")
    ] = ()
    migration_state: VirtualMachineInstanceMigrationState | None = None
    phase: Annotated[
        str | None,
        describe(
            "Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or Failed."
        ),
    ] = None
    phase_transition_timestamps: Annotated[
        tuple[VirtualMachineInstanceMigrationPhaseTransitionTimestamp, ...],
        describe("When each phase was entered."),
        ATOMIC,
    ] = ()
    synchronization_addresses: Annotated[
        tuple[str, ...], describe("Where other clusters reach this one. Nothing writes them yet."), ATOMIC
    ] = ()


class VirtualMachineInstanceMigration(ApiStruct, kw_only=True):
    """The wish to move a running guest to another node. Refused while guests cannot be migrated."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VirtualMachineInstanceMigrationSpec, REQUIRED] = VirtualMachineInstanceMigrationSpec()
    status: VirtualMachineInstanceMigrationStatus = VirtualMachineInstanceMigrationStatus()
