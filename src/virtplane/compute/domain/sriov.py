"""``<hostdev>`` elements for interfaces of kind ``sriov``: PCI functions of the node's network cards."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import pci
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.xml import Element, alias, element

ALIAS = "sriov-"
"""What the aliases of such devices begin with, before the interface's name."""


def sriov_interfaces(vmi: VirtualMachineInstance) -> list[Interface]:
    """The interfaces that are functions of the node's cards."""
    interfaces = vmi.spec.domain.devices.interfaces
    return [each for each in interfaces if each.sriov is not None and each.state != "absent"]


def render_sriov(vmi: VirtualMachineInstance, context: DomainContext) -> list[Element]:
    """A device for each such interface. Raises ValueError for one whose function is not known.

    The MAC address is none of the domain's: the network's CNI plugin has set that of the function.
    """
    rendered = []
    for interface in sriov_interfaces(vmi):
        function = context.functions.get(interface.name)
        if function is None:
            raise ValueError(f"the pod has no PCI function for interface {interface.name}")
        source = element("source", {}, element("address", pci.parts(function)))
        attributes = {"mode": "subsystem", "type": "pci", "managed": "no"}
        node = element("hostdev", attributes, source, alias(ALIAS + interface.name))
        if interface.pci_address:
            node.append(pci.address_element(interface.pci_address))
        if interface.boot_order:
            node.append(element("boot", {"order": interface.boot_order}))
        rendered.append(node)
    return rendered
