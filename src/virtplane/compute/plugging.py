"""Facts about CPU sockets and memory that change while a guest runs, for virt-controller and virt-handler.

virt-controller makes room in the launcher's pod, then says so in the conditions ``HotVCPUChange`` and
``HotMemoryChange`` (reason ``PodResized``); virt-handler plugs what such a condition names, and nothing else:
a condition that speaks of an earlier wish is not for the present one.
"""

from __future__ import annotations

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.compute import amounts

CPU_CHANGE = "HotVCPUChange"
MEMORY_CHANGE = "HotMemoryChange"

POD_RESIZED = "PodResized"
"""The pod has the room that the message names."""
NOT_RESIZED = ("PodResizeInfeasible", "PodResizeDeferred", "PodResizeFailed")
"""The pod cannot have it on its node, not now, or the API server refuses it: a migration may find room."""
HOPELESS = ("PodResizeInfeasible", "PodResizeFailed")
"""Reasons that time alone does not remove."""


def cpu_room(spec: VirtualMachineInstanceSpec) -> str:
    """The message of a condition that says that the pod has room for the sockets in `spec`."""
    return f"the pod has room for {spec.domain.cpu.sockets or 1} CPU sockets"


def memory_room(spec: VirtualMachineInstanceSpec) -> str:
    """The message of a condition that says that the pod has room for the guest's memory in `spec`."""
    return f"the pod has room for {spec.domain.memory.guest or 0} of guest memory"


def has_cpu_room(vmi: VirtualMachineInstance) -> bool:
    """Whether virt-controller has made room for the sockets that the spec names now."""
    return _says(vmi, CPU_CHANGE, cpu_room(vmi.spec))


def has_memory_room(vmi: VirtualMachineInstance) -> bool:
    """Whether virt-controller has made room for the memory that the spec names now."""
    return _says(vmi, MEMORY_CHANGE, memory_room(vmi.spec))


def _says(vmi: VirtualMachineInstance, kind: str, message: str) -> bool:
    return any(
        (item.type, item.status, item.reason, item.message) == (kind, "True", POD_RESIZED, message)
        for item in vmi.status.conditions
    )


def cpu_fits_in_place(spec: VirtualMachineInstanceSpec) -> bool:
    """Whether sockets can be plugged in without a migration: not where each has a CPU of its own."""
    return not spec.domain.cpu.dedicated_cpu_placement


def memory_fits_in_place(spec: VirtualMachineInstanceSpec) -> bool:
    """Whether memory can be plugged in without a migration: a pod's huge pages cannot be resized."""
    return spec.domain.memory.hugepages is None and not spec.domain.cpu.dedicated_cpu_placement


def boot_memory(vmi: VirtualMachineInstance) -> int:
    """The bytes with which the guest was started, or is to be; 0 without ``memory.guest``."""
    reported = vmi.status.memory.guest_at_boot if vmi.status.memory is not None else None
    return amounts.to_bytes(reported if reported is not None else vmi.spec.domain.memory.guest)


def memory_block(spec: VirtualMachineInstanceSpec) -> int:
    """The bytes of the blocks in which memory is plugged in."""
    hugepages = spec.domain.memory.hugepages
    return amounts.GI if hugepages is not None and hugepages.page_size == "1Gi" else 2 * amounts.MI


def pluggable_memory(vmi: VirtualMachineInstance) -> int:
    """The bytes that can be plugged in on top of those at boot; 0 where the guest has no such device."""
    domain = vmi.spec.domain
    memory = domain.memory
    if memory.max_guest is None or memory.guest is None or (vmi.spec.architecture or "amd64") != "amd64":
        return 0
    if domain.cpu.realtime is not None or domain.cpu.shows_numa_nodes or domain.launch_security is not None:
        return 0
    room = amounts.to_bytes(memory.max_guest) - boot_memory(vmi)
    return room if room > 0 and room % memory_block(vmi.spec) == 0 else 0
