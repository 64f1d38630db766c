"""``<interface>`` elements: guests use tap devices that virt-handler made, or passt (see `overrides`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import pci
from virtplane.compute.domain.context import DomainContext, InterfaceLink
from virtplane.compute.domain.xml import ALIAS_PREFIX, Element, alias, element

_MOST = 256
"""Interfaces of a domain beyond this number are not looked at: its XML is the launcher's word."""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PluggedInterface:
    """An interface that a domain has, as its XML says."""

    name: str
    """In the instance's specification."""
    is_up: bool
    """Whether its link is up."""
    mac: str = ""


def render_interfaces(vmi: VirtualMachineInstance, context: DomainContext) -> list[Element]:
    """The guest's interfaces that have a tap, in the order of the specification."""
    devices = vmi.spec.domain.devices
    rendered = []
    for interface in devices.interfaces:
        link = context.interfaces.get(interface.name)
        if link is not None and interface.state != "absent":
            rendered.append(render_interface(vmi, interface, link, emulation=context.emulation))
    return rendered


def render_interface(
    vmi: VirtualMachineInstance, interface: Interface, link: InterfaceLink, *, emulation: bool
) -> Element:
    """One interface, as a domain starts with it or gets it while it runs."""
    model = interface.model or "virtio"
    if model == "virtio":
        is_transitional = bool(vmi.spec.domain.devices.use_virtio_transitional)
        model = "virtio-transitional" if is_transitional else "virtio-non-transitional"
    node = element("interface", {"type": "user" if link.socket else "ethernet"})
    if not link.socket:
        node.append(element("source"))
        node.append(element("target", {"dev": link.tap, "managed": "no"}))
    node.append(element("model", {"type": model}))
    node.append(element("mac", {"address": link.mac}))
    if not link.socket:
        node.append(element("mtu", {"size": link.mtu}))
    node.append(alias(interface.name))
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
        # An emulated guest has no vhost-net: its pod does not ask for the device.
        node.append(element("driver", {"name": "qemu" if emulation else "vhost", "queues": link.queues}))
    if interface.state == "down":
        node.append(element("link", {"state": "down"}))
    return node


def xml_of(node: Element) -> str:
    """The text of one device, for libvirt."""
    return etree.tostring(node, encoding="unicode")


def plugged_interfaces(xml: str) -> dict[str, PluggedInterface]:
    """The interfaces in the XML of a live domain that have our aliases; none if the XML is not libvirt's."""
    return {item.name: item for _, item in _plugged(xml)}


def with_link(xml: str, name: str, *, is_up: bool) -> str:
    """The XML of the interface `name` of a live domain, with its link set; empty if it is not there."""
    node = next((node for node, item in _plugged(xml) if item.name == name), None)
    if node is None:
        return ""
    for present in node.findall("link"):
        node.remove(present)
    node.append(element("link", {"state": "up" if is_up else "down"}))
    return xml_of(node)


def _plugged(xml: str) -> Iterator[tuple[Element, PluggedInterface]]:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        found = etree.fromstring(xml, parser).findall("devices/interface")[:_MOST]
    except (etree.XMLSyntaxError, ValueError):
        return
    for node in found:
        named, link = node.find("alias"), node.find("link")
        name = str(named.get("name", "")).removeprefix(ALIAS_PREFIX) if named is not None else ""
        if _NAME.fullmatch(name):
            mac = node.find("mac")
            address = str(mac.get("address", "")) if mac is not None else ""
            is_up = link is None or link.get("state") != "down"
            yield node, PluggedInterface(name, is_up, address if _MAC.fullmatch(address) else "")
