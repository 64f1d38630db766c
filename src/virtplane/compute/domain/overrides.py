"""Properties of QEMU's devices that libvirt 9 has no word for."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.disks import block_sizes
from virtplane.compute.domain.xml import QEMU_NAMESPACE, Element, element
from virtplane.compute.hotplug import permanent_disks


def render_overrides(vmi: VirtualMachineInstance, context: DomainContext) -> list[Element]:
    """QEMU's ``<override>``: the granularity in which guests discard blocks."""
    node = element(f"{{{QEMU_NAMESPACE}}}override")
    for disk in permanent_disks(vmi):
        sizes = block_sizes(disk, context.disks.get(disk.name))
        if sizes is not None and sizes.discard is not None:
            node.append(_property(f"ua-{disk.name}", "discard_granularity", sizes.discard))
    return [node] if len(node) else []


def _property(alias: str, name: str, value: int) -> Element:
    attributes = {"name": name, "type": "unsigned", "value": value}
    frontend = element(
        f"{{{QEMU_NAMESPACE}}}frontend", {}, element(f"{{{QEMU_NAMESPACE}}}property", attributes)
    )
    return element(f"{{{QEMU_NAMESPACE}}}device", {"alias": alias}, frontend)
