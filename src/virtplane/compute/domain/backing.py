"""``<memoryBacking>``: huge pages, and memory that a server of shared file systems can map."""

from __future__ import annotations

from kubecore.objects.quantity import Quantity
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.xml import Element, element


def render_backing(vmi: VirtualMachineInstance) -> list[Element]:
    """The element, or nothing where the guest's memory is QEMU's own."""
    domain = vmi.spec.domain
    node = element("memoryBacking")
    hugepages = domain.memory.hugepages
    has_hugepages = hugepages is not None and bool(hugepages.page_size)
    if hugepages is not None and hugepages.page_size:
        page = element("page", {"size": Quantity.parse(hugepages.page_size).value, "unit": "b"})
        node.append(element("hugepages", {}, page))
    is_shared = is_mapped_by_others(vmi)
    # Passed between processes by descriptor: a file would need a folder of its own.
    if is_shared or (has_hugepages and vmi.metadata.annotations.get(labels.MEMFD) != "false"):
        node.append(element("source", {"type": "memfd"}))
    if is_shared:
        node.append(element("access", {"mode": "shared"}))
    return [node] if len(node) else []


def is_mapped_by_others(vmi: VirtualMachineInstance) -> bool:
    """Whether processes beside QEMU serve devices out of the guest's memory (vhost-user)."""
    devices = vmi.spec.domain.devices
    return bool(devices.filesystems) or any(card.passt_binding is not None for card in devices.interfaces)
