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
    """The migration by which a guest enters this cluster."""

    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSource(ApiStruct, kw_only=True):
    """Where a guest that leaves this cluster goes."""

    connect_url: str = field(name="connectURL")
    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSpec(ApiStruct, kw_only=True):
    """Which guest moves, and whether it leaves or enters this cluster."""

    added_node_selector: Mapping[str, str] = field(default_factory=dict)
    priority: str | None = None
    receive: VirtualMachineInstanceMigrationTarget | None = None
    send_to: VirtualMachineInstanceMigrationSource | None = None
    vmi_name: Annotated[str | None, describe("The instance to migrate.")] = None


class VirtualMachineInstanceMigrationSourceState(ApiStruct, kw_only=True):
    """The end that the guest leaves."""

    domain_name: str | None = None
    domain_namespace: str | None = None
    migration_uid: str | None = field(default=None, name="migrationUID")
    node: str | None = None
    node_selectors: Mapping[str, str] = field(default_factory=dict)
    persistent_state_pvc_name: str | None = field(default=None, name="persistentStatePVCName")
    pod: str | None = None
    selinux_context: str | None = None
    sync_address: str | None = None
    virtual_machine_instance_uid: str | None = field(default=None, name="virtualMachineInstanceUID")


class VirtualMachineInstanceMigrationTargetState(ApiStruct, kw_only=True):
    """The end that the guest enters."""

    attachment_pod_uid: str | None = field(default=None, name="attachmentPodUID")
    cpu_set: Annotated[tuple[Int, ...], ATOMIC] = ()
    direct_migration_node_ports: Mapping[str, Int] = field(default_factory=dict)
    domain_detected: bool | None = None
    domain_name: str | None = None
    domain_namespace: str | None = None
    domain_ready_timestamp: Time | None = None
    migration_uid: str | None = field(default=None, name="migrationUID")
    node: str | None = None
    node_address: str | None = None
    node_topology: str | None = None
    persistent_state_pvc_name: str | None = field(default=None, name="persistentStatePVCName")
    pod: str | None = None
    selinux_context: str | None = None
    sync_address: str | None = None
    virtual_machine_instance_uid: str | None = field(default=None, name="virtualMachineInstanceUID")


class VirtualMachineInstanceMigrationState(ApiStruct, kw_only=True):
    """The migration as both ends report it into the instance."""

    abort_requested: bool | None = None
    abort_status: str | None = None
    completed: bool | None = None
    end_timestamp: Annotated[Time | None, NULLABLE] = None
    failed: bool | None = None
    failure_reason: str | None = None
    migration_configuration: VMIMConfigurationOptions | None = None
    migration_network_type: str | None = None
    migration_policy_name: str | None = None
    migration_uid: str | None = None
    mode: str | None = None
    source_node: str | None = None
    source_persistent_state_pvc_name: str | None = field(default=None, name="sourcePersistentStatePVCName")
    source_pod: str | None = None
    source_state: VirtualMachineInstanceMigrationSourceState | None = None
    start_timestamp: Annotated[Time | None, NULLABLE] = None
    target_attachment_pod_uid: str | None = field(default=None, name="targetAttachmentPodUID")
    target_cpu_set: Annotated[tuple[Int, ...], ATOMIC] = field(default=(), name="targetCPUSet")
    target_direct_migration_node_ports: Mapping[str, Int] = field(default_factory=dict)
    target_memory_overhead: Quantity | None = None
    target_node: str | None = None
    target_node_address: str | None = None
    target_node_domain_detected: bool | None = None
    target_node_domain_ready_timestamp: Time | None = None
    target_node_topology: str | None = None
    target_persistent_state_pvc_name: str | None = field(default=None, name="targetPersistentStatePVCName")
    target_pod: str | None = None
    target_state: VirtualMachineInstanceMigrationTargetState | None = None


class VirtualMachineInstanceMigrationPhaseTransitionTimestamp(ApiStruct, kw_only=True):
    """When a phase was entered."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class VirtualMachineInstanceMigrationStatus(ApiStruct, kw_only=True):
    """How far the migration is."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"nullable": True}
    conditions: tuple[Condition, ...] = ()
    migration_state: VirtualMachineInstanceMigrationState | None = None
    phase: Annotated[
        str | None,
        describe(
            "Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or Failed."
        ),
    ] = None
    phase_transition_timestamps: Annotated[
        tuple[VirtualMachineInstanceMigrationPhaseTransitionTimestamp, ...], ATOMIC
    ] = ()
    synchronization_addresses: Annotated[tuple[str, ...], ATOMIC] = ()


class VirtualMachineInstanceMigration(ApiStruct, kw_only=True):
    """The wish to move a running guest to another node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[VirtualMachineInstanceMigrationSpec, REQUIRED] = VirtualMachineInstanceMigrationSpec()
    status: VirtualMachineInstanceMigrationStatus = VirtualMachineInstanceMigrationStatus()
