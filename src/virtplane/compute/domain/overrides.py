"""Properties of QEMU's devices that libvirt 9 has no word for.

libvirt 9.0 can start passt by itself, but QEMU does not wait for it, and both ends of the cable get the same
MAC. So libvirt makes the card, with a user network that nobody uses; the card's cable is QEMU's, and leads to
a socket at which QEMU listens for the passt that the launcher starts.
"""

from __future__ import annotations

import orjson

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.disks import block_sizes
from virtplane.compute.domain.xml import ALIAS_PREFIX, QEMU_NAMESPACE, Element, element
from virtplane.compute.hotplug import permanent_disks


def render_overrides(vmi: VirtualMachineInstance, context: DomainContext) -> list[Element]:
    """QEMU's ``<override>``: the granularity in which guests discard blocks, and the cables of passt."""
    node = element(f"{{{QEMU_NAMESPACE}}}override")
    for disk in permanent_disks(vmi):
        sizes = block_sizes(disk, context.disks.get(disk.name))
        if sizes is not None and sizes.discard is not None:
            node.append(_property(f"ua-{disk.name}", "discard_granularity", sizes.discard))
    for name, link in context.interfaces.items():
        if link.socket:
            node.append(_property(f"{ALIAS_PREFIX}{name}", "netdev", _cable(name)))
    return [node] if len(node) else []


def passt_arguments(context: DomainContext) -> list[str]:
    """QEMU's arguments for the other ends of the cables."""
    arguments = []
    for name, link in context.interfaces.items():
        if link.socket:
            address = {"type": "unix", "path": link.socket}
            end = {"type": "stream", "id": _cable(name), "server": True, "addr": address}
            arguments += ["-netdev", orjson.dumps(end).decode()]
    return arguments


def _cable(name: str) -> str:
    return f"passt-{name}"


def _property(alias: str, name: str, value: int | str) -> Element:
    kind = "unsigned" if isinstance(value, int) else "string"
    attributes = {"name": name, "type": kind, "value": value}
    frontend = element(
        f"{{{QEMU_NAMESPACE}}}frontend", {}, element(f"{{{QEMU_NAMESPACE}}}property", attributes)
    )
    return element(f"{{{QEMU_NAMESPACE}}}device", {"alias": alias}, frontend)
