"""Devices other than disks and network cards."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.disks import Disk, Filesystem
from virtplane.api.kubevirt_v1.features import FeatureState
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.markers import ATOMIC, EMPTY_IS_SET, ZERO_IS_UNSET, ApiStruct, describe, mark


class ClientPassthroughDevices(ApiStruct, kw_only=True):
    """Let clients redirect up to four USB devices into the guest."""


class DownwardMetrics(ApiStruct, kw_only=True):
    """A virtio serial port on which the guest reads metrics of its node. Needs the gate DownwardMetrics."""


class VGPUDisplayOptions(ApiStruct, kw_only=True):
    """Whether the virtual GPU is a display."""

    enabled: Annotated[bool | None, describe("Whether it is; true when absent.")] = None
    ram_fb: Annotated[FeatureState | None, describe("The display shows the guest's start, too.")] = field(
        default=None, name="ramFB"
    )


class VGPUOptions(ApiStruct, kw_only=True):
    """Options of a virtual GPU."""

    display: VGPUDisplayOptions | None = None


class GPU(ApiStruct, kw_only=True):
    """A GPU of the node, given to the guest by a device plugin or through a claim."""

    claim_name: Annotated[
        str | None, describe("The entry of resourceClaims through which it comes; not beside deviceName.")
    ] = None
    device_name: Annotated[
        str | None, describe("The resource of the node that it is of, for example nvidia.com/GA102GL_A10.")
    ] = None
    name: Annotated[str, describe("A name for the device, unique in the guest.")]
    request_name: Annotated[
        str | None, describe("The request of the claim that it is of; needed with claimName.")
    ] = None
    tag: Annotated[
        str | None, describe("Tells the guest what the device is for, in the metadata of its config drive.")
    ] = None
    virtual_gpu_options: VGPUOptions | None = field(default=None, name="virtualGPUOptions")


class HostDevice(ApiStruct, kw_only=True):
    """A device of the node, given to the guest like GPUs. Needs the gate HostDevices."""

    claim_name: Annotated[
        str | None, describe("The entry of resourceClaims through which it comes; not beside deviceName.")
    ] = None
    device_name: Annotated[
        str | None, describe("The resource of the node that it is of, for example intel.com/qat.")
    ] = None
    name: Annotated[str, describe("A name for the device, unique in the guest.")]
    request_name: Annotated[
        str | None, describe("The request of the claim that it is of; needed with claimName.")
    ] = None
    tag: Annotated[
        str | None, describe("Tells the guest what the device is for, in the metadata of its config drive.")
    ] = None


class Input(ApiStruct, kw_only=True):
    """A tablet through which a client moves the pointer."""

    bus: Annotated[str | None, describe("usb (when absent) or virtio.")] = None
    name: Annotated[str, describe("A name for the device.")]
    type: Annotated[str, describe("tablet; there is no other.")]


class PanicDevice(ApiStruct, kw_only=True):
    """Tells the host that the guest's kernel crashed."""

    model: Annotated[
        str | None,
        describe("hyperv (under KVM only), isa or pvpanic; libvirt's choice when absent."),
        EMPTY_IS_SET,
    ] = None


class Rng(ApiStruct, kw_only=True):
    """A source of random numbers for the guest, fed by its node's."""


class SoundDevice(ApiStruct, kw_only=True):
    """A sound card."""

    model: Annotated[str | None, describe("ich9 (when absent) or ac97.")] = None
    name: Annotated[str, describe("A name for the device.")]


class TPMDevice(ApiStruct, kw_only=True):
    """A TPM 2.0, emulated by swtpm."""

    enabled: Annotated[bool | None, describe("Whether the guest has it; true when absent.")] = None
    persistent: Annotated[
        bool | None,
        describe("Keep its state over restarts, in a claim that virt-controller makes; false when absent."),
    ] = None


class VideoDevice(ApiStruct, kw_only=True):
    """The video card; not where autoattachGraphicsDevice is false."""

    type: Annotated[
        str | None, describe("vga, cirrus, virtio, ramfb or bochs. When absent, bochs with EFI, else vga.")
    ] = None


class Diag288Watchdog(ApiStruct, kw_only=True):
    """The watchdog of s390x guests."""

    action: Annotated[
        str | None, describe("What is done with such a guest: reset (when absent), shutdown or poweroff.")
    ] = None


class I6300ESBWatchdog(ApiStruct, kw_only=True):
    """The Intel 6300ESB watchdog, of x86 guests."""

    action: Annotated[
        str | None, describe("What is done with such a guest: reset (when absent), shutdown or poweroff.")
    ] = None


class Watchdog(ApiStruct, kw_only=True):
    """Acts on a guest that no longer answers; one model."""

    diag288: Diag288Watchdog | None = None
    i6300esb: I6300ESBWatchdog | None = None
    name: Annotated[str, describe("A name for the device.")]


class Devices(ApiStruct, kw_only=True):
    """Everything plugged into the guest."""

    autoattach_graphics_device: Annotated[
        bool | None, describe("Give the guest a graphics card and VNC; true when absent.")
    ] = None
    autoattach_input_device: Annotated[
        bool | None,
        describe("Give the guest of a VirtualMachine a tablet if it has no inputs. No effect in instances."),
    ] = None
    autoattach_mem_balloon: Annotated[
        bool | None, describe("Give the guest a memory balloon; true when absent.")
    ] = None
    autoattach_pod_interface: Annotated[
        bool | None, describe("Put the guest on the pod network when it names no network; true when absent.")
    ] = None
    autoattach_serial_console: Annotated[
        bool | None, describe("Give the guest a serial console; true when absent.")
    ] = None
    autoattach_vsock: Annotated[
        bool | None, describe("Give the guest a VSOCK device; needs the gate VSOCK. False when absent.")
    ] = field(default=None, name="autoattachVSOCK")
    block_multi_queue: Annotated[
        bool | None, describe("A queue for each virtual CPU, in virtio disks and the SCSI controller.")
    ] = None
    client_passthrough: ClientPassthroughDevices | None = None
    disable_hotplug: Annotated[
        bool | None,
        describe("No disk and no network card can be plugged in while the guest runs."),
        ZERO_IS_UNSET,
    ] = None
    disks: Annotated[
        tuple[Disk, ...], mark(maxItems=256), describe("Disks, CD-ROMs and LUNs; each names a volume.")
    ] = ()
    downward_metrics: DownwardMetrics | None = None
    filesystems: Annotated[
        tuple[Filesystem, ...], describe("Volumes that the guest mounts as file systems."), ATOMIC
    ] = ()
    gpus: Annotated[tuple[GPU, ...], describe("GPUs of the node that the guest has."), ATOMIC] = ()
    host_devices: Annotated[
        tuple[HostDevice, ...], describe("Other devices of the node that the guest has."), ATOMIC
    ] = ()
    inputs: Annotated[tuple[Input, ...], describe("Tablets, through which clients move the pointer.")] = ()
    interfaces: Annotated[
        tuple[Interface, ...], mark(maxItems=256), describe("Network cards; each names a network.")
    ] = ()
    log_serial_console: Annotated[
        bool | None,
        describe(
            "Log what the serial console prints, as a container of the pod; the installation's when absent."
        ),
    ] = None
    network_interface_multiqueue: Annotated[
        bool | None, describe("A queue for each virtual CPU, in virtio network cards.")
    ] = None
    panic_devices: Annotated[
        tuple[PanicDevice, ...], describe("Devices by which the guest's kernel says that it crashed.")
    ] = ()
    rng: Rng | None = None
    sound: SoundDevice | None = None
    tpm: TPMDevice | None = None
    use_virtio_transitional: Annotated[
        bool | None, describe("Virtio devices that old guests know, too; false when absent.")
    ] = None
    video: VideoDevice | None = None
    watchdog: Watchdog | None = None
