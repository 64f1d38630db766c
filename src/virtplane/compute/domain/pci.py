"""PCI addresses that the specification names, and the ports that devices find while the guest runs.

On q35 a device is plugged into a root port, and a port cannot be plugged into a running guest. So there are
as many ports as KubeVirt gives: `_PORTS` of which `_FREE` are free, twice that for guests with more memory.

A guest that says how many ports its interfaces have (kubevirt.io/pci-interface-slot-count) finds its other
devices at the addresses behind them, however many interfaces it starts with.
"""

from __future__ import annotations

import re

from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.processor import memory_bytes
from virtplane.compute.domain.xml import Element, element

_ADDRESS = re.compile(
    r"(?P<domain>[0-9a-f]{4}):(?P<bus>[0-9a-f]{2}):(?P<slot>[0-9a-f]{2})\.(?P<function>[0-7])",
    re.ASCII | re.IGNORECASE,
)
_PORTS, _FREE = 8, 3
_LARGE_BYTES = 2 << 30
_MOST = 31
"""Ports have the numbers of buses, which libvirt puts on the 32 slots of the root complex."""

_VIRTIO_MODELS = ("virtio", "virtio-transitional", "virtio-non-transitional")
_CONTROLLERS = ("scsi", "usb", "virtio-serial")
_COUNT = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_SEATING = ("filesystem", "interface", "controller", "disk", "hostdev", "memballoon", "rng", "input", "vsock")
"""The order in which libvirt gives ports to devices."""


def parts(address: str) -> dict[str, str]:
    """The parts of a PCI address such as ``0000:81:01.0``, as libvirt spells them. Raises ValueError."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{address!r} is not a PCI address such as 0000:81:01.0")
    return {name: f"0x{digits.lower()}" for name, digits in found.groupdict().items()}


def address_element(address: str) -> Element:
    """The ``<address>`` of a device in the guest. Raises ValueError."""
    return element("address", {"type": "pci", **parts(address)})


def root_ports(vmi: VirtualMachineInstance, devices: Element) -> list[Element]:
    """The root ports of a guest with these `devices`; none where libvirt is to make what it needs.

    That is so where nothing is plugged in later, and where a device has an address of its own, for which
    libvirt makes the bridges.
    """
    domain = vmi.spec.domain
    machine = domain.machine.type or "q35"
    annotations = vmi.metadata.annotations
    if domain.devices.disable_hotplug or "q35" not in machine:
        return []
    if annotations.get(labels.PLACE_PCI_DEVICES_ON_ROOT) == "true":
        return []
    if any(address.get("type") == "pci" for address in devices.iterfind("*/address")):
        return []
    is_large = memory_bytes(domain) > _LARGE_BYTES
    ports, free = (2 * _PORTS, 2 * _FREE) if is_large else (_PORTS, _FREE)
    used, reserved = sum(_takes_port(device) or _counts_as_one(device) for device in devices), 0
    slots = annotations.get(labels.PCI_INTERFACE_SLOT_COUNT)
    if slots is not None:
        reserved = min(_free_slots(slots, len(domain.devices.interfaces)), max(0, _MOST - used))
        _seat(devices, reserved)
    count = min(_MOST, max(ports, used + free, used + reserved))
    # Index 0 is the root complex.
    return [
        element("controller", {"type": "pci", "index": index, "model": "pcie-root-port"})
        for index in range(1, count + 1)
    ]


def _free_slots(slots: str, interfaces: int) -> int:
    if not _COUNT.fullmatch(slots):
        raise ValueError(f"annotation {labels.PCI_INTERFACE_SLOT_COUNT}: {slots!r} is not a number")
    return max(0, int(slots) - interfaces)


def _seat(devices: Element, reserved: int) -> None:
    """Give each device its port, and leave `reserved` ports free after those of the interfaces."""
    seated = sorted(filter(_takes_port, devices), key=lambda device: _SEATING.index(str(device.tag)))
    for index, device in enumerate(seated[:_MOST], start=1):
        is_behind = device.tag not in ("filesystem", "interface")
        bus = index + reserved if is_behind else index
        device.append(address_element(f"0000:{bus:02x}:00.0"))


def _takes_port(device: Element) -> bool:
    tag, model = str(device.tag), device.get("model", "")
    if tag == "disk":
        target = device.find("target")
        return target is not None and target.get("bus") == "virtio"
    if tag == "controller":
        return device.get("type") in _CONTROLLERS and model != "none"
    if tag == "input":
        return device.get("bus") == "virtio"
    if tag in ("memballoon", "rng"):
        return model in _VIRTIO_MODELS
    if tag == "hostdev":
        return device.get("type") in ("pci", "mdev")
    return tag in ("interface", "filesystem", "vsock")


def _counts_as_one(device: Element) -> bool:
    """Whether KubeVirt counts a device that takes no port itself: watchdogs, whose bridge takes one, and the
    USB controller that is not there.
    """
    return device.tag == "watchdog" or (device.tag == "controller" and device.get("type") == "usb")
