"""Devices through which a guest's kernel says that it has crashed."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.devices import Devices
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.xml import Element, element

_PCI = "pvpanic"
_PCI_SLOT = "0x1c"
"""libvirt counts up from 1 for the root bus, and has fixed places for the board's devices above this one."""


def render_panic_devices(devices: Devices, context: DomainContext) -> list[Element]:
    """``<panic>`` of each device; that of Hyper-V exists only with KVM. Those on PCI are ``arguments``."""
    models = [device.model or None for device in devices.panic_devices if device.model != _PCI]
    if context.emulation:
        models = [model for model in models if model != "hyperv"]
    return [element("panic", {"model": model}) for model in models]


def panic_arguments(devices: Devices) -> list[str]:
    """Arguments of QEMU for the device on PCI, for which libvirt has an element since 9.1 only.

    One is enough for a guest that asks for more.
    """
    is_wanted = any(device.model == _PCI for device in devices.panic_devices)
    return ["-device", f"pvpanic-pci,addr={_PCI_SLOT}"] if is_wanted else []
