"""``<interface>`` elements: guests plug into taps that virt-handler made."""

from __future__ import annotations

from kubecore.json import JsonObject, get_bool, get_int, get_list, get_str
from virtplane.compute.domain.context import DomainContext, InterfaceLink
from virtplane.compute.domain.xml import Element, alias, element


def render_interfaces(vmi: JsonObject, context: DomainContext) -> list[Element]:
    """The guest's interfaces that have a tap, in the order of the specification."""
    devices = get_list(vmi, "spec", "domain", "devices", "interfaces")
    transitional = get_bool(vmi, "spec", "domain", "devices", "useVirtioTransitional")
    rendered = []
    for interface in devices:
        link = context.interfaces.get(get_str(interface, "name"))
        if link is not None and get_str(interface, "state") != "absent":
            rendered.append(_render(interface, link, transitional=transitional))
    return rendered


def _render(interface: JsonObject, link: InterfaceLink, *, transitional: bool) -> Element:
    model = get_str(interface, "model") or "virtio"
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
        alias(get_str(interface, "name")),
    )
    # QEMU's network boot ROM costs seconds at every start and is of use only where the network boots.
    order = get_int(interface, "bootOrder")
    if order:
        node.append(element("boot", {"order": order}))
    else:
        node.append(element("rom", {"enabled": "no"}))
    if link.queues > 1:
        node.append(element("driver", {"name": "vhost", "queues": link.queues}))
    if get_str(interface, "state") == "down":
        node.append(element("link", {"state": "down"}))
    return node
