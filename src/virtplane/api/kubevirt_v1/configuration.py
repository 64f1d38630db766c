"""Settings of the whole installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.component_configuration import (
    ReloadableComponentConfiguration,
    TLSConfiguration,
)
from virtplane.api.kubevirt_v1.developer_configuration import DeveloperConfiguration
from virtplane.api.kubevirt_v1.device_configuration import MediatedDevicesConfiguration, PermittedHostDevices
from virtplane.api.kubevirt_v1.guest_configuration import (
    ArchConfiguration,
    ConfidentialComputeConfiguration,
    HypervisorConfiguration,
    KSMConfiguration,
    LiveUpdateConfiguration,
    SeccompConfiguration,
    SMBiosConfiguration,
    SupportContainerResources,
    VirtualMachineOptions,
)
from virtplane.api.kubevirt_v1.migration_configuration import MigrationConfiguration
from virtplane.api.kubevirt_v1.network_configuration import NetworkConfiguration
from virtplane.api.markers import (
    ATOMIC,
    NULLABLE,
    ApiStruct,
    Int,
    Quantity,
    UInt32Count,
    describe,
    list_map,
    mark,
    one_of,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class ChangedBlockTrackingSelectors(ApiStruct, kw_only=True):
    """Machines whose changed blocks are tracked. No effect."""

    namespace_label_selector: Annotated[
        LabelSelector | None, describe("Namespaces whose machines are tracked. No effect.")
    ] = None
    virtual_machine_label_selector: Annotated[
        LabelSelector | None, describe("Machines that are tracked. No effect.")
    ] = None


class CommonInstancetypesDeployment(ApiStruct, kw_only=True):
    """Whether the common instance types and preferences are installed."""

    enabled: Annotated[
        bool | None,
        NULLABLE,
        describe(
            "Whether virt-operator installs the common instance types and preferences; true by default."
        ),
    ] = None


class InstancetypeConfiguration(ApiStruct, kw_only=True):
    """How machines refer to instance types."""

    reference_policy: Annotated[
        str | None,
        NULLABLE,
        one_of("reference", "expand", "expandAll"),
        describe(
            "reference (default) keeps references; expand copies the type into new machines,"
            " expandAll into all."
        ),
    ] = None


class PersistentReservationConfiguration(ApiStruct, kw_only=True):
    """Whether guests may reserve shared LUNs by SCSI (persistent reservations)."""

    enabled: Annotated[
        bool | None,
        NULLABLE,
        describe(
            "Whether disks may ask for reservations; without it, only if the gate"
            " PersistentReservation is listed."
        ),
    ] = None


class VirtTemplateDeployment(ApiStruct, kw_only=True):
    """Whether virt-template is installed. No effect."""

    enabled: Annotated[bool | None, NULLABLE, describe("Whether virt-template is installed. No effect.")] = (
        None
    )


class KubeVirtConfiguration(ApiStruct, kw_only=True):
    """Settings for the whole installation. If one of them is invalid, the last valid ones stay in use."""

    additional_guest_memory_overhead_ratio: Annotated[
        str | None,
        describe("Factor of the memory that launchers need beside their guests, as text; at least 1.0."),
    ] = None
    api_configuration: Annotated[
        ReloadableComponentConfiguration | None, describe("Requests of virt-api to the API server.")
    ] = None
    architecture_configuration: ArchConfiguration = ArchConfiguration()
    auto_cpu_limit_namespace_label_selector: Annotated[
        LabelSelector | None,
        describe("Namespaces in which guests without CPU limit get one: the number of their virtual CPUs."),
    ] = field(default=None, name="autoCPULimitNamespaceLabelSelector")
    changed_block_tracking_label_selectors: Annotated[ChangedBlockTrackingSelectors | None, NULLABLE] = None
    common_instancetypes_deployment: Annotated[CommonInstancetypesDeployment, NULLABLE] = (
        CommonInstancetypesDeployment()
    )
    confidential_compute: Annotated[ConfidentialComputeConfiguration | None, NULLABLE] = None
    controller_configuration: Annotated[
        ReloadableComponentConfiguration | None, describe("Requests of virt-controller to the API server.")
    ] = None
    cpu_model: Annotated[
        str | None, describe("CPU model of guests that name none; host-model by default.")
    ] = None
    cpu_request: Annotated[
        Quantity | None,
        describe("CPU that a pod requests for a guest with no request, such as 250m; 100m by default."),
    ] = None
    default_runtime_class: Annotated[
        str | None, describe("RuntimeClass of guests' pods; by default the cluster's own.")
    ] = None
    developer_configuration: DeveloperConfiguration = DeveloperConfiguration()
    emulated_machines: Annotated[
        tuple[str, ...],
        describe(
            "Machine types that guests of any architecture may ask for, in place of the architecture's."
        ),
    ] = ()
    eviction_strategy: Annotated[
        str | None,
        describe(
            "Strategy of guests that name none: None (default), LiveMigrate, LiveMigrateIfPossible or"
            " External."
        ),
    ] = None
    handler_configuration: Annotated[
        ReloadableComponentConfiguration | None, describe("Requests of virt-handler to the API server.")
    ] = None
    hypervisors: Annotated[
        tuple[HypervisorConfiguration, ...],
        ATOMIC,
        mark(maxItems=1),
        describe("The hypervisor that runs guests. No effect: it is always kvm."),
    ] = ()
    image_pull_policy: Annotated[
        str | None,
        requested_one_of("Always", "IfNotPresent", "Never"),
        describe("When images of launchers are pulled: IfNotPresent (default), Always or Never."),
    ] = None
    instancetype: Annotated[InstancetypeConfiguration, NULLABLE] = InstancetypeConfiguration()
    ksm_configuration: KSMConfiguration | None = None
    live_update_configuration: LiveUpdateConfiguration = LiveUpdateConfiguration()
    machine_type: Annotated[
        str | None, describe("Machine type of guests that name none, in place of the architecture's.")
    ] = None
    mediated_devices_configuration: MediatedDevicesConfiguration | None = None
    mem_balloon_stats_period: Annotated[
        UInt32Count | None,
        describe("Seconds between two statistics of guests' memory; 10 by default, 0 for none."),
    ] = None
    migrations: MigrationConfiguration = MigrationConfiguration()
    min_cpu_model: Annotated[str | None, describe("No effect: no model is compared with it.")] = field(
        default=None, name="minCPUModel"
    )
    network: NetworkConfiguration = NetworkConfiguration()
    obsolete_cpu_models: Annotated[
        Mapping[str, bool] | None,
        describe("CPU models that nodes do not offer (true), in place of the built-in list."),
    ] = field(default=None, name="obsoleteCPUModels")
    ovmf_path: Annotated[
        str | None,
        describe("Folder of the UEFI firmware in the launcher's image, in place of the architecture's."),
    ] = None
    permitted_host_devices: PermittedHostDevices | None = None
    persistent_reservation_configuration: Annotated[PersistentReservationConfiguration, NULLABLE] = (
        PersistentReservationConfiguration()
    )
    role_aggregation_strategy: Annotated[
        str | None,
        one_of("AggregateToDefault", "Manual"),
        describe("AggregateToDefault (default) adds the roles to view, edit and admin; Manual does not."),
    ] = None
    seccomp_configuration: SeccompConfiguration = SeccompConfiguration()
    selinux_launcher_type: Annotated[
        str | None, describe("SELinux type of guests' pods; by default the container runtime's.")
    ] = None
    smbios: SMBiosConfiguration = SMBiosConfiguration()
    support_container_resources: Annotated[
        tuple[SupportContainerResources, ...],
        list_map("type"),
        describe("CPU and memory of helper containers, by their kind."),
    ] = ()
    supported_guest_agent_versions: Annotated[
        tuple[str, ...], describe("Guest agents that count as supported, such as 4.*; by default 2.* to 5.*.")
    ] = ()
    tls_configuration: TLSConfiguration | None = None
    virt_template_deployment: Annotated[VirtTemplateDeployment | None, NULLABLE] = None
    virtual_machine_instances_per_node: Annotated[
        Int | None, describe("Most guests on a node; 1000 by default.")
    ] = None
    virtual_machine_options: VirtualMachineOptions = VirtualMachineOptions()
    vm_rollout_strategy: Annotated[
        str | None,
        NULLABLE,
        one_of("Stage", "LiveUpdate"),
        describe(
            "LiveUpdate (default) applies changes to running guests where it can; Stage at the next start."
        ),
    ] = None
    vm_state_storage_class: Annotated[
        str | None,
        describe(
            "Storage class for firmware and TPM state; else the default for machines, else the cluster's."
        ),
    ] = None
    webhook_configuration: Annotated[
        ReloadableComponentConfiguration | None,
        describe("Requests of virt-api's webhooks to the API server."),
    ] = None
