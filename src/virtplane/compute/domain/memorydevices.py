"""Memory that is plugged in while the guest runs: a virtio-mem device, empty at the start."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute import plugging
from virtplane.compute.domain.xml import Element, alias, element

MODEL = "virtio-mem"


def maximum(vmi: VirtualMachineInstance) -> list[Element]:
    """``<maxMemory>``, where memory can be plugged in."""
    size = plugging.pluggable_memory(vmi)
    if not size:
        return []
    total = plugging.boot_memory(vmi) + size
    return [element("maxMemory", {"slots": 1, "unit": "b"}, str(total))]


def add_numa_cell(vmi: VirtualMachineInstance, cpu: Element, vcpus: int) -> None:
    """Give `cpu` the one NUMA node that memory devices need, unless it has nodes already."""
    if not plugging.pluggable_memory(vmi) or cpu.find("numa") is not None:
        return
    attributes = {"id": 0, "cpus": f"0-{vcpus - 1}", "memory": plugging.boot_memory(vmi), "unit": "b"}
    cpu.append(element("numa", {}, element("cell", attributes)))


def device(vmi: VirtualMachineInstance, requested_bytes: int = 0) -> list[Element]:
    """The device, of which the guest is to use `requested_bytes`; its alias is how libvirt finds it."""
    size = plugging.pluggable_memory(vmi)
    if not size:
        return []
    target = element("target")
    for name, count in (
        ("size", size),
        ("block", plugging.memory_block(vmi.spec)),
        ("requested", requested_bytes),
    ):
        target.append(element(name, {"unit": "b"}, str(count)))
    target.insert(1, element("node", {}, "0"))
    return [element("memory", {"model": MODEL}, target, alias(MODEL))]
