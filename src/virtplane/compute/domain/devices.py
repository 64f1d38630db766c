"""Everything below ``<devices>`` that is neither disk nor interface."""

from __future__ import annotations

from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from virtplane.compute.domain.context import PRIVATE_DIRECTORY, DomainContext
from virtplane.compute.domain.disks import bus_of
from virtplane.compute.domain.xml import Element, alias, element, on_off

GUEST_AGENT_CHANNEL = "org.qemu.guest_agent.0"
_BALLOON_STATISTICS_SECONDS = 10
_VGA_MEMORY_KIBIBYTES = 16384
_USB_CLIENT_DEVICES = 4


def socket_directory(vmi: JsonObject) -> str:
    """Where the sockets of the serial console and the display are, inside the launcher's container."""
    return f"{PRIVATE_DIRECTORY}/{get_str(vmi, 'metadata', 'uid')}"


def render_devices(vmi: JsonObject, context: DomainContext) -> list[Element]:
    """Controllers, consoles, display, inputs and the rest, in libvirt's customary order."""
    devices = get_object(vmi, "spec", "domain", "devices")
    elements = _controllers(vmi, devices)
    elements += _serial_console(vmi, devices, context)
    elements.append(_guest_agent(vmi))
    elements += _usb_redirection(vmi, devices)
    elements += _inputs(devices)
    elements += _graphics(vmi, devices)
    elements += _tpm(devices)
    elements += _sound(devices)
    elements += _watchdog(devices)
    elements.append(_balloon(vmi, devices, context))
    if "rng" in devices:
        elements.append(_random())
    return elements


def _virtio_model(devices: JsonObject) -> str:
    return "virtio-transitional" if get_bool(devices, "useVirtioTransitional") else "virtio-non-transitional"


def _controllers(vmi: JsonObject, devices: JsonObject) -> list[Element]:
    disks = get_list(devices, "disks")
    buses = {bus_of(disk) for disk in disks}
    usb_inputs = any(get_str(item, "bus") in ("", "usb") for item in get_list(devices, "inputs"))
    needs_usb = usb_inputs or "usb" in buses or "clientPassthrough" in devices
    elements = [
        element("controller", {"type": "usb", "index": 0, "model": "qemu-xhci" if needs_usb else "none"})
    ]
    if "scsi" in buses or not get_bool(devices, "disableHotplug"):
        elements.append(element("controller", {"type": "scsi", "index": 0, "model": _virtio_model(devices)}))
    elements.append(
        element("controller", {"type": "virtio-serial", "index": 0, "model": _virtio_model(devices)})
    )
    annotations = get_object(vmi, "metadata", "annotations")
    if annotations.get("kubevirt.io/disablePCIHole64") == "true":
        hole = element("pcihole64", {"unit": "KiB"}, "0")
        elements.append(element("controller", {"type": "pci", "index": 0, "model": "pcie-root"}, hole))
    return elements


def _serial_console(vmi: JsonObject, devices: JsonObject, context: DomainContext) -> list[Element]:
    if not get_bool(devices, "autoattachSerialConsole", default=True):
        return []
    path = f"{socket_directory(vmi)}/virt-serial0"
    serial = element("serial", {"type": "unix"}, element("source", {"mode": "bind", "path": path}))
    if get_bool(devices, "logSerialConsole", default=context.serial_console_log):
        serial.append(element("log", {"file": f"{path}-log", "append": "on"}))
    serial.append(element("target", {"port": 0}))
    console = element("console", {"type": "pty"}, element("target", {"type": "serial", "port": 0}))
    return [serial, console]


def _guest_agent(vmi: JsonObject) -> Element:
    # libvirt's own choice of a path would be longer than a socket's address may be.
    source = element("source", {"mode": "bind", "path": f"{socket_directory(vmi)}/guest-agent"})
    target = element("target", {"type": "virtio", "name": GUEST_AGENT_CHANNEL})
    return element("channel", {"type": "unix"}, source, target)


def usb_redirection_sockets() -> list[str]:
    """The sockets by which USB devices of clients reach the guest, one for each device."""
    return [f"virt-usbredir-{slot}" for slot in range(_USB_CLIENT_DEVICES)]


def _usb_redirection(vmi: JsonObject, devices: JsonObject) -> list[Element]:
    if "clientPassthrough" not in devices:
        return []
    return [
        element(
            "redirdev",
            {"type": "unix", "bus": "usb"},
            element("source", {"mode": "bind", "path": f"{socket_directory(vmi)}/{name}"}),
        )
        for name in usb_redirection_sockets()
    ]


def _inputs(devices: JsonObject) -> list[Element]:
    elements = []
    for item in get_list(devices, "inputs"):
        attributes = {"type": get_str(item, "type") or "tablet", "bus": get_str(item, "bus") or "usb"}
        elements.append(element("input", attributes, alias(get_str(item, "name"))))
    return elements


def _graphics(vmi: JsonObject, devices: JsonObject) -> list[Element]:
    if not get_bool(devices, "autoattachGraphicsDevice", default=True):
        return []
    listen = element("listen", {"type": "socket", "socket": f"{socket_directory(vmi)}/virt-vnc"})
    efi = "efi" in get_object(vmi, "spec", "domain", "firmware", "bootloader")
    kind = get_str(devices, "video", "type") or ("bochs" if efi else "vga")
    model = {"type": kind, "heads": 1, "vram": _VGA_MEMORY_KIBIBYTES if kind == "vga" else None}
    return [element("graphics", {"type": "vnc"}, listen), element("video", {}, element("model", model))]


def _tpm(devices: JsonObject) -> list[Element]:
    if "tpm" not in devices or not get_bool(devices, "tpm", "enabled", default=True):
        return []
    persistent = get_bool(devices, "tpm", "persistent")
    backend = {"type": "emulator", "version": "2.0", "persistent_state": "yes" if persistent else None}
    return [element("tpm", {"model": "tpm-crb" if persistent else "tpm-tis"}, element("backend", backend))]


def _sound(devices: JsonObject) -> list[Element]:
    if "sound" not in devices:
        return []
    sound = get_object(devices, "sound")
    return [element("sound", {"model": get_str(sound, "model") or "ich9"}, alias(get_str(sound, "name")))]


def _watchdog(devices: JsonObject) -> list[Element]:
    if "watchdog" not in devices:
        return []
    watchdog = get_object(devices, "watchdog")
    model = "diag288" if "diag288" in watchdog else "i6300esb"
    action = get_str(watchdog, model, "action") or "reset"
    return [element("watchdog", {"model": model, "action": action}, alias(get_str(watchdog, "name")))]


def _balloon(vmi: JsonObject, devices: JsonObject, context: DomainContext) -> Element:
    if not get_bool(devices, "autoattachMemBalloon", default=True):
        return element("memballoon", {"model": "none"})
    domain = get_object(vmi, "spec", "domain")
    annotations = get_object(vmi, "metadata", "annotations")
    high_performance = (
        get_bool(domain, "cpu", "dedicatedCpuPlacement")
        or "realtime" in get_object(domain, "cpu")
        or "hugepages" in get_object(domain, "memory")
    )
    disabled = annotations.get("kubevirt.io/free-page-reporting-disabled") == "true"
    reporting = context.free_page_reporting and not high_performance and not disabled
    attributes = {"model": _virtio_model(devices), "freePageReporting": on_off(reporting)}
    return element("memballoon", attributes, element("stats", {"period": _BALLOON_STATISTICS_SECONDS}))


def _random() -> Element:
    return element("rng", {"model": "virtio"}, element("backend", {"model": "random"}, "/dev/urandom"))
