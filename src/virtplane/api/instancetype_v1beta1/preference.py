"""Preferences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.clock import ClockOffset, Timer
from virtplane.api.kubevirt_v1.cpu import CPUFeature
from virtplane.api.kubevirt_v1.devices import Rng, TPMDevice, VGPUOptions
from virtplane.api.kubevirt_v1.disks import BlockSize
from virtplane.api.kubevirt_v1.features import FeatureAPIC, FeatureHyperv, FeatureKVM, FeatureState
from virtplane.api.kubevirt_v1.firmware import EFI
from virtplane.api.kubevirt_v1.launch_security import LaunchSecurity
from virtplane.api.kubevirt_v1.networks import InterfaceMasquerade
from virtplane.api.markers import ApiStruct, Int64, Quantity, UInt32Count, describe
from virtplane.api.meta_v1 import ObjectMeta


class ClockPreferences(ApiStruct, kw_only=True):
    """Preferred clock and timers."""

    preferred_clock_offset: ClockOffset | None = None
    preferred_timer: Timer | None = None


class SpreadOptions(ApiStruct, kw_only=True):
    """How virtual CPUs are spread over sockets, cores and threads."""

    across: str | None = None
    ratio: UInt32Count | None = None


class CPUPreferences(ApiStruct, kw_only=True):
    """Preferred CPU topology and features."""

    preferred_cpu_features: tuple[CPUFeature, ...] = field(default=(), name="preferredCPUFeatures")
    preferred_cpu_topology: Annotated[
        str | None, describe("How virtual CPUs are laid out: sockets, cores, threads, spread or any.")
    ] = field(default=None, name="preferredCPUTopology")
    spread_options: SpreadOptions = SpreadOptions()


class DevicePreferences(ApiStruct, kw_only=True):
    """Preferred buses, models and automatic devices."""

    preferred_autoattach_graphics_device: bool | None = None
    preferred_autoattach_input_device: bool | None = None
    preferred_autoattach_mem_balloon: bool | None = None
    preferred_autoattach_pod_interface: bool | None = None
    preferred_autoattach_serial_console: bool | None = None
    preferred_block_multi_queue: bool | None = None
    preferred_cdrom_bus: str | None = None
    preferred_disable_hotplug: bool | None = None
    preferred_disk_block_size: BlockSize | None = None
    preferred_disk_bus: str | None = None
    preferred_disk_cache: str | None = None
    preferred_disk_dedicated_io_thread: bool | None = None
    preferred_disk_io: str | None = field(default=None, name="preferredDiskIO")
    preferred_input_bus: str | None = None
    preferred_input_type: str | None = None
    preferred_interface_masquerade: InterfaceMasquerade | None = None
    preferred_interface_model: str | None = None
    preferred_lun_bus: str | None = None
    preferred_network_interface_multi_queue: bool | None = None
    preferred_panic_device_model: str | None = None
    preferred_rng: Rng | None = None
    preferred_sound_model: str | None = None
    preferred_tpm: TPMDevice | None = field(default=None, name="preferredTPM")
    preferred_use_virtio_transitional: bool | None = None
    preferred_video_type: str | None = None
    preferred_virtual_gpu_options: VGPUOptions | None = field(default=None, name="preferredVirtualGPUOptions")


class FeaturePreferences(ApiStruct, kw_only=True):
    """Preferred platform features."""

    preferred_acpi: FeatureState | None = None
    preferred_apic: FeatureAPIC | None = None
    preferred_hyperv: FeatureHyperv | None = None
    preferred_kvm: FeatureKVM | None = None
    preferred_pvspinlock: FeatureState | None = None
    preferred_smm: FeatureState | None = None


class FirmwarePreferences(ApiStruct, kw_only=True):
    """Preferred firmware."""

    preferred_efi: EFI | None = None
    preferred_use_bios: bool | None = None
    preferred_use_bios_serial: bool | None = None
    preferred_use_efi: bool | None = None
    preferred_use_secure_boot: bool | None = None


class MachinePreferences(ApiStruct, kw_only=True):
    """Preferred machine type."""

    preferred_machine_type: str | None = None


class CPUPreferenceRequirement(ApiStruct, kw_only=True):
    """Virtual CPUs needed at least."""

    guest: UInt32Count


class MemoryPreferenceRequirement(ApiStruct, kw_only=True):
    """Memory needed at least."""

    guest: Quantity


class PreferenceRequirements(ApiStruct, kw_only=True):
    """What a machine must have at least."""

    architecture: str | None = None
    cpu: CPUPreferenceRequirement | None = None
    memory: MemoryPreferenceRequirement | None = None


class VolumePreferences(ApiStruct, kw_only=True):
    """Preferred storage."""

    preferred_storage_class_name: str | None = None


class VirtualMachinePreferenceSpec(ApiStruct, kw_only=True):
    """The preferred values, and what machines must have at least."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    clock: ClockPreferences = ClockPreferences()
    cpu: CPUPreferences = CPUPreferences()
    devices: DevicePreferences = DevicePreferences()
    features: FeaturePreferences = FeaturePreferences()
    firmware: FirmwarePreferences = FirmwarePreferences()
    machine: MachinePreferences = MachinePreferences()
    prefer_spread_socket_to_core_ratio: UInt32Count | None = None
    preferred_architecture: str | None = None
    preferred_launch_security: LaunchSecurity | None = None
    preferred_subdomain: str | None = None
    preferred_termination_grace_period_seconds: Int64 | None = None
    requirements: PreferenceRequirements = PreferenceRequirements()
    volumes: VolumePreferences = VolumePreferences()


class VirtualMachinePreference(ApiStruct, kw_only=True):
    """Values for what machines leave open, for one namespace."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachinePreferenceSpec


class VirtualMachineClusterPreference(ApiStruct, kw_only=True):
    """Values for what machines leave open, for the whole cluster."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VirtualMachinePreferenceSpec
