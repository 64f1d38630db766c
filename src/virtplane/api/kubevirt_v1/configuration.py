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
    list_map,
    mark,
    one_of,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class ChangedBlockTrackingSelectors(ApiStruct, kw_only=True):
    """Machines whose changed blocks are tracked."""

    namespace_label_selector: LabelSelector | None = None
    virtual_machine_label_selector: LabelSelector | None = None


class CommonInstancetypesDeployment(ApiStruct, kw_only=True):
    """Whether the common instance types and preferences are installed."""

    enabled: Annotated[bool | None, NULLABLE] = None


class InstancetypeConfiguration(ApiStruct, kw_only=True):
    """How machines refer to instance types."""

    reference_policy: Annotated[str | None, NULLABLE, one_of("reference", "expand", "expandAll")] = None


class PersistentReservationConfiguration(ApiStruct, kw_only=True):
    """Whether SCSI persistent reservations are allowed."""

    enabled: Annotated[bool | None, NULLABLE] = None


class VirtTemplateDeployment(ApiStruct, kw_only=True):
    """Whether virt-template is installed."""

    enabled: Annotated[bool | None, NULLABLE] = None


class KubeVirtConfiguration(ApiStruct, kw_only=True):
    """Settings for the whole installation."""

    additional_guest_memory_overhead_ratio: str | None = None
    api_configuration: ReloadableComponentConfiguration | None = None
    architecture_configuration: ArchConfiguration = ArchConfiguration()
    auto_cpu_limit_namespace_label_selector: LabelSelector | None = field(
        default=None, name="autoCPULimitNamespaceLabelSelector"
    )
    changed_block_tracking_label_selectors: Annotated[ChangedBlockTrackingSelectors | None, NULLABLE] = None
    common_instancetypes_deployment: Annotated[CommonInstancetypesDeployment, NULLABLE] = (
        CommonInstancetypesDeployment()
    )
    confidential_compute: Annotated[ConfidentialComputeConfiguration | None, NULLABLE] = None
    controller_configuration: ReloadableComponentConfiguration | None = None
    cpu_model: str | None = None
    cpu_request: Quantity | None = None
    default_runtime_class: str | None = None
    developer_configuration: DeveloperConfiguration = DeveloperConfiguration()
    emulated_machines: tuple[str, ...] = ()
    eviction_strategy: str | None = None
    handler_configuration: ReloadableComponentConfiguration | None = None
    hypervisors: Annotated[tuple[HypervisorConfiguration, ...], ATOMIC, mark(maxItems=1)] = ()
    image_pull_policy: Annotated[str | None, requested_one_of("Always", "IfNotPresent", "Never")] = None
    instancetype: Annotated[InstancetypeConfiguration, NULLABLE] = InstancetypeConfiguration()
    ksm_configuration: KSMConfiguration | None = None
    live_update_configuration: LiveUpdateConfiguration = LiveUpdateConfiguration()
    machine_type: str | None = None
    mediated_devices_configuration: MediatedDevicesConfiguration | None = None
    mem_balloon_stats_period: UInt32Count | None = None
    migrations: MigrationConfiguration = MigrationConfiguration()
    min_cpu_model: str | None = field(default=None, name="minCPUModel")
    network: NetworkConfiguration = NetworkConfiguration()
    obsolete_cpu_models: Mapping[str, bool] | None = field(default=None, name="obsoleteCPUModels")
    ovmf_path: str | None = None
    permitted_host_devices: PermittedHostDevices | None = None
    persistent_reservation_configuration: Annotated[PersistentReservationConfiguration, NULLABLE] = (
        PersistentReservationConfiguration()
    )
    role_aggregation_strategy: Annotated[str | None, one_of("AggregateToDefault", "Manual")] = None
    seccomp_configuration: SeccompConfiguration = SeccompConfiguration()
    selinux_launcher_type: str | None = None
    smbios: SMBiosConfiguration = SMBiosConfiguration()
    support_container_resources: Annotated[tuple[SupportContainerResources, ...], list_map("type")] = ()
    supported_guest_agent_versions: tuple[str, ...] = ()
    tls_configuration: TLSConfiguration | None = None
    virt_template_deployment: Annotated[VirtTemplateDeployment | None, NULLABLE] = None
    virtual_machine_instances_per_node: Int | None = None
    virtual_machine_options: VirtualMachineOptions = VirtualMachineOptions()
    vm_rollout_strategy: Annotated[str | None, NULLABLE, one_of("Stage", "LiveUpdate")] = None
    vm_state_storage_class: str | None = None
    webhook_configuration: ReloadableComponentConfiguration | None = None
