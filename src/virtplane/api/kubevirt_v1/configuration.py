"""Settings of the whole installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.core_v1 import ResourceRequirementsWithoutClaims
from virtplane.api.kubevirt_v1.migration_configuration import MigrationConfiguration
from virtplane.api.markers import (
    ATOMIC,
    NULLABLE,
    SET,
    ApiStruct,
    Int,
    Int64,
    Quantity,
    UInt32Count,
    describe,
    list_map,
    mark,
    one_of,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class TokenBucketRateLimiter(ApiStruct, kw_only=True):
    """Requests per second, and how many may come at once."""

    burst: Int
    qps: float


class RateLimiter(ApiStruct, kw_only=True):
    """A limit of requests."""

    token_bucket_rate_limiter: TokenBucketRateLimiter | None = None


class RESTClientConfiguration(ApiStruct, kw_only=True):
    """How hard a component may press the API server."""

    rate_limiter: RateLimiter | None = None


class ReloadableComponentConfiguration(ApiStruct, kw_only=True):
    """Settings that a component takes over without a restart."""

    rest_client: RESTClientConfiguration | None = None


class ArchSpecificConfiguration(ApiStruct, kw_only=True):
    """Machine types and firmware of one architecture."""

    emulated_machines: Annotated[tuple[str, ...], ATOMIC] = ()
    machine_type: str | None = None
    ovmf_path: str | None = None


class ArchConfiguration(ApiStruct, kw_only=True):
    """Settings of each guest architecture."""

    amd64: ArchSpecificConfiguration | None = None
    arm64: ArchSpecificConfiguration | None = None
    default_architecture: str | None = None
    ppc64le: ArchSpecificConfiguration | None = None
    s390x: ArchSpecificConfiguration | None = None


class ChangedBlockTrackingSelectors(ApiStruct, kw_only=True):
    """Machines whose changed blocks are tracked."""

    namespace_label_selector: LabelSelector | None = None
    virtual_machine_label_selector: LabelSelector | None = None


class CommonInstancetypesDeployment(ApiStruct, kw_only=True):
    """Whether the common instance types and preferences are installed."""

    enabled: Annotated[bool | None, NULLABLE] = None


class TDXAttestationConfiguration(ApiStruct, kw_only=True):
    """Quote generation for TDX guests."""

    enforced: Annotated[bool | None, mark(default=False)] = None
    qgs_socket_path: Annotated[str | None, mark(default="/var/run/tdx-qgs/qgs.socket")] = None


class TDXConfiguration(ApiStruct, kw_only=True):
    """Settings of TDX guests."""

    attestation: TDXAttestationConfiguration | None = None


class ConfidentialComputeConfiguration(ApiStruct, kw_only=True):
    """Settings of encrypted guests."""

    tdx: Annotated[TDXConfiguration | None, NULLABLE] = None


class DiskVerification(ApiStruct, kw_only=True):
    """Limits of the check of a disk image before it is used."""

    memory_limit: Quantity


class LogVerbosity(ApiStruct, kw_only=True):
    """Log levels of components (0-9)."""

    node_verbosity: Mapping[str, Int] = field(default_factory=dict)
    virt_api: Int | None = field(default=None, name="virtAPI")
    virt_controller: Int | None = None
    virt_handler: Int | None = None
    virt_launcher: Int | None = None
    virt_operator: Int | None = None
    virt_synchronization_controller: Int | None = None


class DeveloperConfiguration(ApiStruct, kw_only=True):
    """Feature gates, log levels and overcommitment."""

    cluster_profiler: bool | None = None
    cpu_allocation_ratio: Annotated[
        Int | None, describe("Virtual CPUs per CPU requested of the node; 10 when absent.")
    ] = None
    disabled_feature_gates: Annotated[tuple[str, ...], ATOMIC, describe("Feature gates switched off.")] = ()
    disk_verification: DiskVerification | None = None
    feature_gates: Annotated[tuple[str, ...], ATOMIC, describe("Feature gates switched on.")] = ()
    log_verbosity: LogVerbosity = LogVerbosity()
    memory_overcommit: Annotated[
        Int | None,
        mark(minimum=10),
        describe("Guest memory in percent of the memory requested of the node; 100 when absent."),
    ] = None
    minimum_cluster_tsc_frequency: Int64 | None = field(default=None, name="minimumClusterTSCFrequency")
    minimum_reserve_pvc_bytes: Int64 | None = field(default=None, name="minimumReservePVCBytes")
    node_selectors: Mapping[str, str] = field(default_factory=dict)
    pvc_tolerate_less_space_up_to_percent: Int | None = None
    use_emulation: Annotated[bool | None, describe("Emulate guests in software on nodes without KVM.")] = None


class HypervisorConfiguration(ApiStruct, kw_only=True):
    """The hypervisor that runs guests."""

    name: Annotated[str | None, one_of("kvm", "hyperv-direct")] = None


class InstancetypeConfiguration(ApiStruct, kw_only=True):
    """How machines refer to instance types."""

    reference_policy: Annotated[str | None, NULLABLE, one_of("reference", "expand", "expandAll")] = None


class KSMConfiguration(ApiStruct, kw_only=True):
    """Nodes on which equal memory pages are merged."""

    node_label_selector: LabelSelector | None = None


class LiveUpdateConfiguration(ApiStruct, kw_only=True):
    """How much CPU and memory can be added to a running guest."""

    max_cpu_sockets: UInt32Count | None = None
    max_guest: Quantity | None = None
    max_hotplug_ratio: UInt32Count | None = None


class NodeMediatedDeviceTypesConfig(ApiStruct, kw_only=True):
    """Mediated devices to make on certain nodes."""

    mediated_device_types: Annotated[tuple[str, ...], ATOMIC] = ()
    mediated_devices_types: Annotated[tuple[str, ...], ATOMIC] = ()
    node_selector: Mapping[str, str]


class MediatedDevicesConfiguration(ApiStruct, kw_only=True):
    """Mediated devices to make on nodes."""

    enabled: bool | None = None
    mediated_device_types: Annotated[tuple[str, ...], ATOMIC] = ()
    mediated_devices_types: Annotated[tuple[str, ...], ATOMIC] = ()
    node_mediated_device_types: Annotated[tuple[NodeMediatedDeviceTypesConfig, ...], ATOMIC] = ()


class InterfaceBindingMigration(ApiStruct, kw_only=True):
    """How a network binding plugin gets through live migrations."""

    method: str | None = None


class InterfaceBindingPlugin(ApiStruct, kw_only=True):
    """A network binding plugin: its sidecar and what it needs."""

    compute_resource_overhead: ResourceRequirementsWithoutClaims | None = None
    domain_attachment_type: str | None = None
    downward_api: str | None = field(default=None, name="downwardAPI")
    migration: InterfaceBindingMigration | None = None
    network_attachment_definition: str | None = None
    sidecar_image: str | None = None


class NetworkConfiguration(ApiStruct, kw_only=True):
    """Default network interface and binding plugins."""

    binding: Mapping[str, InterfaceBindingPlugin] = field(default_factory=dict)
    default_network_interface: str | None = None
    permit_bridge_interface_on_pod_network: bool | None = None
    permit_slirp_interface: bool | None = None


class MediatedHostDevice(ApiStruct, kw_only=True):
    """Mediated devices that guests may use."""

    external_resource_provider: bool | None = None
    mdev_name_selector: str
    resource_name: str


class PciHostDevice(ApiStruct, kw_only=True):
    """PCI devices that guests may use."""

    external_resource_provider: bool | None = None
    pci_vendor_selector: str
    resource_name: str


class USBSelector(ApiStruct, kw_only=True):
    """Vendor and product of a USB device (hexadecimal)."""

    product: str
    vendor: str


class USBHostDevice(ApiStruct, kw_only=True):
    """USB devices that guests may use."""

    external_resource_provider: bool | None = None
    resource_name: str
    selectors: Annotated[tuple[USBSelector, ...], ATOMIC] = ()


class PermittedHostDevices(ApiStruct, kw_only=True):
    """Devices of nodes that guests may use."""

    mediated_devices: Annotated[tuple[MediatedHostDevice, ...], ATOMIC] = ()
    pci_host_devices: Annotated[tuple[PciHostDevice, ...], ATOMIC] = ()
    usb: Annotated[tuple[USBHostDevice, ...], ATOMIC] = ()


class PersistentReservationConfiguration(ApiStruct, kw_only=True):
    """Whether SCSI persistent reservations are allowed."""

    enabled: Annotated[bool | None, NULLABLE] = None


class CustomProfile(ApiStruct, kw_only=True):
    """The seccomp profile of launcher pods."""

    localhost_profile: str | None = None
    runtime_default_profile: bool | None = None


class VirtualMachineInstanceProfile(ApiStruct, kw_only=True):
    """The seccomp profile of launcher pods."""

    custom_profile: CustomProfile = CustomProfile()


class SeccompConfiguration(ApiStruct, kw_only=True):
    """Seccomp profiles."""

    virtual_machine_instance_profile: VirtualMachineInstanceProfile = VirtualMachineInstanceProfile()


class SMBiosConfiguration(ApiStruct, kw_only=True):
    """What SMBIOS tells guests about the system."""

    family: str | None = None
    manufacturer: str | None = None
    product: str | None = None
    sku: str | None = None
    version: str | None = None


class SupportContainerResources(ApiStruct, kw_only=True):
    """Resources of one kind of helper container."""

    resources: ResourceRequirementsWithoutClaims
    type: str


class TLSConfiguration(ApiStruct, kw_only=True):
    """The oldest TLS version and the ciphers accepted."""

    ciphers: Annotated[tuple[str, ...], SET] = ()
    min_tls_version: Annotated[
        str | None, one_of("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
    ] = field(default=None, name="minTLSVersion")


class VirtTemplateDeployment(ApiStruct, kw_only=True):
    """Whether virt-template is installed."""

    enabled: Annotated[bool | None, NULLABLE] = None


class DisableFreePageReporting(ApiStruct, kw_only=True):
    """Present: the balloon does not report free pages."""


class DisableSerialConsoleLog(ApiStruct, kw_only=True):
    """Present: serial consoles are not logged."""


class VirtualMachineOptions(ApiStruct, kw_only=True):
    """Options of every guest."""

    disable_free_page_reporting: DisableFreePageReporting | None = None
    disable_serial_console_log: DisableSerialConsoleLog | None = None


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
