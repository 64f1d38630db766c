"""Devices other than disks and network cards."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.kubevirt_v1.disks import Disk, Filesystem
from virtplane.api.kubevirt_v1.features import FeatureState
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.markers import ATOMIC, EMPTY_IS_SET, ZERO_IS_UNSET, ApiStruct, describe, mark


class ClientPassthroughDevices(ApiStruct, kw_only=True):
    """Let a client redirect its USB devices into the guest."""


class DownwardMetrics(ApiStruct, kw_only=True):
    """A virtio serial port on which the guest reads host metrics."""


class VGPUDisplayOptions(ApiStruct, kw_only=True):
    """Whether a virtual GPU offers a display."""

    enabled: bool | None = None
    ram_fb: FeatureState | None = field(default=None, name="ramFB")


class VGPUOptions(ApiStruct, kw_only=True):
    """Options of a virtual GPU."""

    display: VGPUDisplayOptions | None = None


class GPU(ApiStruct, kw_only=True):
    """A GPU of the node, passed to the guest."""

    claim_name: str | None = None
    device_name: str | None = None
    name: str
    request_name: str | None = None
    tag: str | None = None
    virtual_gpu_options: VGPUOptions | None = field(default=None, name="virtualGPUOptions")


class HostDevice(ApiStruct, kw_only=True):
    """A device of the node, passed to the guest."""

    claim_name: str | None = None
    device_name: str | None = None
    name: str
    request_name: str | None = None
    tag: str | None = None


class Input(ApiStruct, kw_only=True):
    """A tablet through which a client moves the pointer."""

    bus: str | None = None
    name: str
    type: str


class PanicDevice(ApiStruct, kw_only=True):
    """Tells the host that the guest's kernel crashed."""

    model: Annotated[str | None, EMPTY_IS_SET] = None


class Rng(ApiStruct, kw_only=True):
    """Feed the guest with the host's entropy."""


class SoundDevice(ApiStruct, kw_only=True):
    """A sound card."""

    model: str | None = None
    name: str


class TPMDevice(ApiStruct, kw_only=True):
    """A TPM 2.0, emulated by swtpm."""

    enabled: bool | None = None
    persistent: bool | None = None


class VideoDevice(ApiStruct, kw_only=True):
    """The video card."""

    type: str | None = None


class Diag288Watchdog(ApiStruct, kw_only=True):
    """The s390x diag288 watchdog."""

    action: str | None = None


class I6300ESBWatchdog(ApiStruct, kw_only=True):
    """The Intel 6300ESB watchdog."""

    action: str | None = None


class Watchdog(ApiStruct, kw_only=True):
    """Resets or stops a guest that no longer answers."""

    diag288: Diag288Watchdog | None = None
    i6300esb: I6300ESBWatchdog | None = None
    name: str


class Devices(ApiStruct, kw_only=True):
    """Everything plugged into the guest."""

    autoattach_graphics_device: Annotated[
        bool | None, describe("Give the guest a graphics card and VNC; true when absent.")
    ] = None
    autoattach_input_device: bool | None = None
    autoattach_mem_balloon: Annotated[
        bool | None, describe("Give the guest a memory balloon; true when absent.")
    ] = None
    autoattach_pod_interface: Annotated[
        bool | None, describe("Put the guest on the pod network when it names no network; true when absent.")
    ] = None
    autoattach_serial_console: Annotated[
        bool | None, describe("Give the guest a serial console; true when absent.")
    ] = None
    autoattach_vsock: Annotated[bool | None, describe("Give the guest a VSOCK device.")] = field(
        default=None, name="autoattachVSOCK"
    )
    block_multi_queue: Annotated[bool | None, describe("One queue per virtual CPU for virtio disks.")] = None
    client_passthrough: ClientPassthroughDevices | None = None
    disable_hotplug: Annotated[
        bool | None, describe("No devices can be plugged in while the guest runs."), ZERO_IS_UNSET
    ] = None
    disks: Annotated[
        tuple[Disk, ...], mark(maxItems=256), describe("Disks, CD-ROMs and LUNs; each names a volume.")
    ] = ()
    downward_metrics: DownwardMetrics | None = None
    filesystems: Annotated[tuple[Filesystem, ...], ATOMIC] = ()
    gpus: Annotated[tuple[GPU, ...], ATOMIC] = ()
    host_devices: Annotated[tuple[HostDevice, ...], ATOMIC] = ()
    inputs: tuple[Input, ...] = ()
    interfaces: Annotated[
        tuple[Interface, ...], mark(maxItems=256), describe("Network cards; each names a network.")
    ] = ()
    log_serial_console: Annotated[
        bool | None, describe("Write what the serial console prints to the launcher pod's log.")
    ] = None
    network_interface_multiqueue: Annotated[
        bool | None, describe("One queue per virtual CPU for virtio network cards.")
    ] = None
    panic_devices: tuple[PanicDevice, ...] = ()
    rng: Rng | None = None
    sound: SoundDevice | None = None
    tpm: TPMDevice | None = None
    use_virtio_transitional: Annotated[
        bool | None, describe("Virtio devices that old guests understand.")
    ] = None
    video: VideoDevice | None = None
    watchdog: Watchdog | None = None
