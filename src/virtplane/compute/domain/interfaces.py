"""``<interface>`` elements: guests use tap devices that virt-handler made."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import pci
from virtplane.compute.domain.context import DomainContext, InterfaceLink
from virtplane.compute.domain.xml import Element, alias, element


def render_interfaces(vmi: VirtualMachineInstance, context: DomainContext) -> list[Element]:
    """The guest's interfaces that have a tap, in the order of the specification."""
    devices = vmi.spec.domain.devices
    rendered = []
    for interface in devices.interfaces:
        link = context.interfaces.get(interface.name)
        if link is not None and interface.state != "absent":
            rendered.append(_render(interface, link, transitional=bool(devices.use_virtio_transitional)))
    return rendered


def _render(interface: Interface, link: InterfaceLink, *, transitional: bool) -> Element:
    model = interface.model or "virtio"
    if model == "virtio":
        model = "virtio-transitional" if transitional else "virtio-non-transitional"
    node = element(
        "interface",
        {"type": "ethernet"},
        element("source"),
        element("target", {"dev": link.tap, "managed": "no"}),
        element("model", {"type": model}),
        element("mac", {"address": link.mac}),
        element("mtu", {"size": link.mtu}),
        alias(interface.name),
    )
    if interface.pci_address:
        node.append(pci.address_element(interface.pci_address))
    if interface.acpi_index:
        node.append(element("acpi", {"index": interface.acpi_index}))
    # QEMU's network boot ROM costs seconds at every start, so only interfaces with a boot order get it.
    if interface.boot_order:
        node.append(element("boot", {"order": interface.boot_order}))
    else:
        node.append(element("rom", {"enabled": "no"}))
    if link.queues > 1:
        node.append(element("driver", {"name": "vhost", "queues": link.queues}))
    if interface.state == "down":
        node.append(element("link", {"state": "down"}))
    return node
