"""Everything below ``<devices>`` except disks and interfaces."""

from __future__ import annotations

from virtplane.api import labels
from virtplane.api.kubevirt_v1.devices import Devices, SoundDevice, TPMDevice, Watchdog
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import PRIVATE_DIRECTORY, DomainContext
from virtplane.compute.domain.disks import bus_of
from virtplane.compute.domain.processor import vcpu_count
from virtplane.compute.domain.xml import Element, alias, element, on_off

GUEST_AGENT_CHANNEL = "org.qemu.guest_agent.0"
_VGA_MEMORY_KIBIBYTES = 16384
_USB_CLIENT_DEVICES = 4


def socket_directory(vmi: VirtualMachineInstance) -> str:
    """Where the sockets of the serial console and the display are, inside the launcher's container."""
    return f"{PRIVATE_DIRECTORY}/{vmi.metadata.uid}"


def render_devices(vmi: VirtualMachineInstance, context: DomainContext) -> list[Element]:
    """Controllers, consoles, display, inputs and others, in libvirt's usual order."""
    devices = vmi.spec.domain.devices
    elements = _controllers(vmi, devices)
    elements += _serial_console(vmi, devices, context)
    elements.append(_guest_agent(vmi))
    elements += _usb_redirection(vmi, devices)
    elements += _inputs(devices)
    elements += _graphics(vmi, devices)
    if devices.tpm is not None and devices.tpm.enabled is not False:
        elements.append(_tpm(devices.tpm))
    if devices.sound is not None:
        elements.append(_sound(devices.sound))
    if devices.watchdog is not None:
        elements.append(_watchdog(devices.watchdog))
    elements.append(_balloon(vmi, devices, context))
    if devices.rng is not None:
        elements.append(_random(devices))
    return elements


def _virtio_model(devices: Devices) -> str:
    return "virtio-transitional" if devices.use_virtio_transitional else "virtio-non-transitional"


def _controllers(vmi: VirtualMachineInstance, devices: Devices) -> list[Element]:
    buses = {bus_of(disk) for disk in devices.disks}
    usb_inputs = any(item.bus in (None, "", "usb") for item in devices.inputs)
    needs_usb = usb_inputs or "usb" in buses or devices.client_passthrough is not None
    elements = [
        element("controller", {"type": "usb", "index": 0, "model": "qemu-xhci" if needs_usb else "none"})
    ]
    if "scsi" in buses or not devices.disable_hotplug:
        elements.append(_scsi(vmi, devices))
    elements.append(
        element("controller", {"type": "virtio-serial", "index": 0, "model": _virtio_model(devices)})
    )
    if vmi.metadata.annotations.get(labels.DISABLE_PCI_HOLE64) == "true":
        hole = element("pcihole64", {"unit": "KiB"}, "0")
        elements.append(element("controller", {"type": "pci", "index": 0, "model": "pcie-root"}, hole))
    return elements


def _scsi(vmi: VirtualMachineInstance, devices: Devices) -> Element:
    controller = element("controller", {"type": "scsi", "index": 0, "model": _virtio_model(devices)})
    if devices.block_multi_queue:
        controller.append(element("driver", {"queues": vcpu_count(vmi.spec.domain)}))
    return controller


def _serial_console(vmi: VirtualMachineInstance, devices: Devices, context: DomainContext) -> list[Element]:
    if devices.autoattach_serial_console is False:
        return []
    path = f"{socket_directory(vmi)}/virt-serial0"
    serial = element("serial", {"type": "unix"}, element("source", {"mode": "bind", "path": path}))
    asked = devices.log_serial_console
    if context.serial_console_log if asked is None else asked:
        serial.append(element("log", {"file": f"{path}-log", "append": "on"}))
    serial.append(element("target", {"port": 0}))
    console = element("console", {"type": "pty"}, element("target", {"type": "serial", "port": 0}))
    return [serial, console]


def _guest_agent(vmi: VirtualMachineInstance) -> Element:
    # The path that libvirt would choose can be too long for the address of a unix socket.
    source = element("source", {"mode": "bind", "path": f"{socket_directory(vmi)}/guest-agent"})
    target = element("target", {"type": "virtio", "name": GUEST_AGENT_CHANNEL})
    return element("channel", {"type": "unix"}, source, target)


def usb_redirection_sockets() -> list[str]:
    """The sockets for USB redirection, one for each device."""
    return [f"virt-usbredir-{slot}" for slot in range(_USB_CLIENT_DEVICES)]


def _usb_redirection(vmi: VirtualMachineInstance, devices: Devices) -> list[Element]:
    if devices.client_passthrough is None:
        return []
    return [
        element(
            "redirdev",
            {"type": "unix", "bus": "usb"},
            element("source", {"mode": "bind", "path": f"{socket_directory(vmi)}/{name}"}),
        )
        for name in usb_redirection_sockets()
    ]


def _inputs(devices: Devices) -> list[Element]:
    elements = []
    for item in devices.inputs:
        bus = item.bus or "usb"
        model = "virtio" if bus == "virtio" else None
        attributes = {"type": item.type or "tablet", "bus": bus, "model": model}
        elements.append(element("input", attributes, alias(item.name)))
    return elements


def _graphics(vmi: VirtualMachineInstance, devices: Devices) -> list[Element]:
    if devices.autoattach_graphics_device is False:
        return []
    listen = element("listen", {"type": "socket", "socket": f"{socket_directory(vmi)}/virt-vnc"})
    asked = devices.video.type if devices.video is not None else None
    kind = asked or ("bochs" if vmi.spec.domain.firmware.bootloader.efi is not None else "vga")
    model = {"type": kind, "heads": 1, "vram": _VGA_MEMORY_KIBIBYTES if kind == "vga" else None}
    return [element("graphics", {"type": "vnc"}, listen), element("video", {}, element("model", model))]


def _tpm(tpm: TPMDevice) -> Element:
    backend = {"type": "emulator", "version": "2.0", "persistent_state": "yes" if tpm.persistent else None}
    return element("tpm", {"model": "tpm-crb" if tpm.persistent else "tpm-tis"}, element("backend", backend))


def _sound(sound: SoundDevice) -> Element:
    return element("sound", {"model": sound.model or "ich9"}, alias(sound.name))


def _watchdog(watchdog: Watchdog) -> Element:
    model = "diag288" if watchdog.diag288 is not None else "i6300esb"
    settings = watchdog.diag288 or watchdog.i6300esb
    action = (settings.action if settings is not None else None) or "reset"
    return element("watchdog", {"model": model, "action": action}, alias(watchdog.name))


def _balloon(vmi: VirtualMachineInstance, devices: Devices, context: DomainContext) -> Element:
    if devices.autoattach_mem_balloon is False:
        return element("memballoon", {"model": "none"})
    domain = vmi.spec.domain
    high_performance = (
        domain.cpu.dedicated_cpu_placement
        or domain.cpu.realtime is not None
        or domain.memory.hugepages is not None
    )
    disabled = vmi.metadata.annotations.get(labels.FREE_PAGE_REPORTING_DISABLED) == "true"
    reporting = context.free_page_reporting and not high_performance and not disabled
    attributes = {"model": _virtio_model(devices), "freePageReporting": on_off(reporting)}
    seconds = context.balloon_seconds
    return element("memballoon", attributes, element("stats", {"period": seconds}) if seconds else None)


def _random(devices: Devices) -> Element:
    source = element("backend", {"model": "random"}, "/dev/urandom")
    return element("rng", {"model": _virtio_model(devices)}, source)
