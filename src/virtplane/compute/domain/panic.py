"""Devices through which a guest's kernel says that it has crashed."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.devices import Devices
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.xml import Element, element

_PCI = "pvpanic"


def render_panic_devices(devices: Devices, context: DomainContext) -> list[Element]:
    """``<panic>`` of each device; that of Hyper-V exists only with KVM. Those on PCI are ``arguments``."""
    models = [device.model or None for device in devices.panic_devices if device.model != _PCI]
    if context.emulation:
        models = [model for model in models if model != "hyperv"]
    return [element("panic", {"model": model}) for model in models]


def panic_arguments(devices: Devices) -> list[str]:
    """Arguments of QEMU for the devices on PCI, for which libvirt has an element since 9.1 only."""
    found = [device for device in devices.panic_devices if device.model == _PCI]
    return ["-device", "pvpanic-pci"] * len(found)
