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

    preferred_clock_offset: Annotated[
        ClockOffset | None, describe("UTC or time zone of the hardware clock, for machines that set neither.")
    ] = None
    preferred_timer: Annotated[Timer | None, describe("Timers, for machines that set none.")] = None


class SpreadOptions(ApiStruct, kw_only=True):
    """How preferredCPUTopology spread divides virtual CPUs."""

    across: Annotated[
        str | None,
        describe("SocketsCores (when absent), CoresThreads or SocketsCoresThreads (two threads per core)."),
    ] = None
    ratio: Annotated[
        UInt32Count | None,
        describe("Cores per socket, or with CoresThreads threads per core; 2 when absent."),
    ] = None


class CPUPreferences(ApiStruct, kw_only=True):
    """Preferred CPU topology and features."""

    preferred_cpu_features: Annotated[
        tuple[CPUFeature, ...], describe("CPU flags for machines that do not name them.")
    ] = field(default=(), name="preferredCPUFeatures")
    preferred_cpu_topology: Annotated[
        str | None,
        describe(
            "What virtual CPUs of the instance type become: sockets (when absent), cores, threads, "
            "spread or any."
        ),
    ] = field(default=None, name="preferredCPUTopology")
    spread_options: SpreadOptions = SpreadOptions()


class DevicePreferences(ApiStruct, kw_only=True):
    """Buses, models and automatic devices, where the machine does not choose."""

    preferred_autoattach_graphics_device: Annotated[
        bool | None, describe("Whether guests have a graphics card and VNC.")
    ] = None
    preferred_autoattach_input_device: Annotated[
        bool | None, describe("Whether guests without inputs get a tablet.")
    ] = None
    preferred_autoattach_mem_balloon: Annotated[
        bool | None, describe("Whether guests have a memory balloon.")
    ] = None
    preferred_autoattach_pod_interface: Annotated[
        bool | None, describe("Whether guests that name no network are on the pod network.")
    ] = None
    preferred_autoattach_serial_console: Annotated[
        bool | None, describe("Whether guests have a serial console.")
    ] = None
    preferred_block_multi_queue: Annotated[
        bool | None,
        describe("Whether virtio disks and the SCSI controller have a queue for each virtual CPU."),
    ] = None
    preferred_cdrom_bus: Annotated[str | None, describe("Bus of CD-ROMs: sata, scsi or usb.")] = None
    preferred_disable_hotplug: Annotated[
        bool | None,
        describe("Whether nothing can be plugged into running guests; wins over the machine's own value."),
    ] = None
    preferred_disk_block_size: Annotated[
        BlockSize | None, describe("Block sizes of disks, as guests see them.")
    ] = None
    preferred_disk_bus: Annotated[str | None, describe("Bus of disks: virtio, sata, scsi or usb.")] = None
    preferred_disk_cache: Annotated[
        str | None, describe("Cache mode of disks: none, writethrough or writeback.")
    ] = None
    preferred_disk_dedicated_io_thread: Annotated[
        bool | None, describe("Whether virtio disks have threads of their own.")
    ] = None
    preferred_disk_io: Annotated[str | None, describe("I/O mode of disks: native or threads.")] = field(
        default=None, name="preferredDiskIO"
    )
    preferred_input_bus: Annotated[str | None, describe("Bus of tablets: usb or virtio.")] = None
    preferred_input_type: Annotated[str | None, describe("Type of inputs: tablet.")] = None
    preferred_interface_masquerade: Annotated[
        InterfaceMasquerade | None, describe("Masquerade, for interfaces on the pod network without binding.")
    ] = None
    preferred_interface_model: Annotated[
        str | None, describe("Model of network cards, such as virtio or e1000e.")
    ] = None
    preferred_lun_bus: Annotated[str | None, describe("Bus of LUNs: virtio, sata or scsi.")] = None
    preferred_network_interface_multi_queue: Annotated[
        bool | None, describe("Whether virtio network cards have a queue for each virtual CPU.")
    ] = None
    preferred_panic_device_model: Annotated[
        str | None, describe("Guests get a panic device of this model: hyperv, isa or pvpanic.")
    ] = None
    preferred_rng: Annotated[
        Rng | None, describe("A source of random numbers, for machines without one.")
    ] = None
    preferred_sound_model: Annotated[
        str | None, describe("Model of the sound card, where there is one: ich9 or ac97.")
    ] = None
    preferred_tpm: Annotated[TPMDevice | None, describe("A TPM 2.0, for machines without one.")] = field(
        default=None, name="preferredTPM"
    )
    preferred_use_virtio_transitional: Annotated[
        bool | None, describe("Whether virtio devices are such that old guests know, too.")
    ] = None
    preferred_video_type: Annotated[
        str | None, describe("Type of the video card: vga, cirrus, virtio, ramfb or bochs.")
    ] = None
    preferred_virtual_gpu_options: Annotated[
        VGPUOptions | None, describe("Options of virtual GPUs, for those without.")
    ] = field(default=None, name="preferredVirtualGPUOptions")


class FeaturePreferences(ApiStruct, kw_only=True):
    """Platform features, where the machine does not choose."""

    preferred_acpi: Annotated[
        FeatureState | None, describe("ACPI tables; wins over the machine's own value.")
    ] = None
    preferred_apic: FeatureAPIC | None = None
    preferred_hyperv: FeatureHyperv | None = None
    preferred_kvm: FeatureKVM | None = None
    preferred_pvspinlock: Annotated[FeatureState | None, describe("Paravirtual spin locks.")] = None
    preferred_smm: Annotated[
        FeatureState | None, describe("System management mode, which EFI with secureBoot needs.")
    ] = None


class FirmwarePreferences(ApiStruct, kw_only=True):
    """Firmware, where the machine does not choose."""

    preferred_efi: Annotated[EFI | None, describe("Settings of UEFI, with which guests boot.")] = None
    preferred_use_bios: Annotated[
        bool | None, describe("Boot with BIOS; wins over preferredEfi and preferredUseEfi.")
    ] = None
    preferred_use_bios_serial: Annotated[
        bool | None, describe("Guests that boot with BIOS show its messages on the serial console.")
    ] = None
    preferred_use_efi: Annotated[bool | None, describe("Boot with UEFI; preferredEfi has more settings.")] = (
        None
    )
    preferred_use_secure_boot: Annotated[
        bool | None, describe("Guests that boot with UEFI boot signed loaders only.")
    ] = None


class MachinePreferences(ApiStruct, kw_only=True):
    """Preferred machine type."""

    preferred_machine_type: Annotated[
        str | None, describe("The machine type, such as q35, where the machine names none.")
    ] = None


class CPUPreferenceRequirement(ApiStruct, kw_only=True):
    """Virtual CPUs needed at least."""

    guest: Annotated[UInt32Count, describe("Number of virtual CPUs; machines with fewer are refused.")]


class MemoryPreferenceRequirement(ApiStruct, kw_only=True):
    """Memory needed at least."""

    guest: Annotated[
        Quantity, describe("Memory of the guest, for example 2Gi; machines with less are refused.")
    ]


class PreferenceRequirements(ApiStruct, kw_only=True):
    """What a machine must have at least."""

    architecture: Annotated[
        str | None, describe("The guest's architecture; machines of another are refused.")
    ] = None
    cpu: CPUPreferenceRequirement | None = None
    memory: MemoryPreferenceRequirement | None = None


class VolumePreferences(ApiStruct, kw_only=True):
    """Preferred storage."""

    preferred_storage_class_name: Annotated[
        str | None, describe("Storage class of DataVolume templates that name none.")
    ] = None


class VirtualMachinePreferenceSpec(ApiStruct, kw_only=True):
    """The preferred values, and what machines must have at least."""

    annotations: Annotated[Mapping[str, str], describe("Annotations of instances that do not have them.")] = (
        field(default_factory=dict)
    )
    clock: ClockPreferences = ClockPreferences()
    cpu: CPUPreferences = CPUPreferences()
    devices: DevicePreferences = DevicePreferences()
    features: FeaturePreferences = FeaturePreferences()
    firmware: FirmwarePreferences = FirmwarePreferences()
    machine: MachinePreferences = MachinePreferences()
    prefer_spread_socket_to_core_ratio: Annotated[
        UInt32Count | None, describe("Deprecated: use cpu.spreadOptions.ratio.")
    ] = None
    preferred_architecture: Annotated[
        str | None, describe("Architecture of machines that name none: amd64. Guests run on no other.")
    ] = None
    preferred_launch_security: Annotated[
        LaunchSecurity | None, describe("Memory encryption, for machines that ask for none.")
    ] = None
    preferred_subdomain: Annotated[str | None, describe("Subdomain of instances that have none.")] = None
    preferred_termination_grace_period_seconds: Annotated[
        Int64 | None, describe("Seconds that guests have to shut down, where the machine does not say.")
    ] = None
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
