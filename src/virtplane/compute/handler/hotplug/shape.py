"""How many CPUs and how much memory a running guest has: what libvirt says, and what to change. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lxml import etree

from virtplane.api.kubevirt_v1.cpu import CPUTopology
from virtplane.api.kubevirt_v1.memory import MemoryStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute import amounts, plugging
from virtplane.compute.domain import memorydevices
from virtplane.compute.domain.processor import memory_bytes, topology
from virtplane.compute.domain.xml import Element, element

_UNITS = {"b": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_ADDRESS = re.compile(r"pci|0x[0-9a-f]{1,4}", re.ASCII)
_MOST_VCPUS = 4096


@dataclass(frozen=True, slots=True)
class Shape:
    """The CPUs and the plugged memory of a running guest."""

    vcpus: int
    requested_bytes: int = 0
    """How much of the memory device the guest is to use."""
    current_bytes: int = 0
    """How much of it the guest uses: its driver plugs and unplugs."""
    address: tuple[tuple[str, str], ...] = field(default=())
    """Where the memory device is; empty where the guest has none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes that are due; None for what stays."""

    vcpus: int | None = None
    requested_bytes: int | None = None


def read(xml: str) -> Shape | None:
    """The shape in the XML of a live domain; None where it says none. The launcher may have written it."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        root = etree.fromstring(xml, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    vcpu = root.find("vcpu")
    if vcpu is None:
        return None
    text = vcpu.get("current") or vcpu.text or ""
    if not _NUMBER.fullmatch(text) or not 0 < int(text) <= _MOST_VCPUS:
        return None
    device = root.find(f"devices/memory[@model='{memorydevices.MODEL}']")
    if device is None:
        return Shape(int(text))
    requested, current = (_bytes(device.find(f"target/{name}")) for name in ("requested", "current"))
    return Shape(int(text), requested, current, _address(device))


def _bytes(node: Element | None) -> int:
    text = (node.text or "") if node is not None else ""
    unit = _UNITS.get(node.get("unit", "KiB"), 0) if node is not None else 0
    return int(text) * unit if _NUMBER.fullmatch(text) else 0


def _address(device: Element) -> tuple[tuple[str, str], ...]:
    node = device.find("address")
    names = ("type", "domain", "bus", "slot", "function")
    found = tuple((name, node.get(name, "")) for name in names) if node is not None else ()
    return found if all(_ADDRESS.fullmatch(value) for _, value in found) else ()


def plan(vmi: VirtualMachineInstance, shape: Shape) -> Plan:
    """What to change: more only where the pod has room for it, less memory at once.

    CPUs are never taken away: that needs a restart.
    """
    sockets, cores, threads = topology(vmi.spec.domain)
    vcpus = sockets * cores * threads
    grows = vcpus > shape.vcpus and plugging.has_cpu_room(vmi)
    wanted = wanted_bytes(vmi)
    is_due = bool(shape.address) and wanted != shape.requested_bytes
    is_due = is_due and (wanted < shape.requested_bytes or plugging.has_memory_room(vmi))
    return Plan(vcpus if grows else None, wanted if is_due else None)


def wanted_bytes(vmi: VirtualMachineInstance) -> int:
    """How much of the memory device the spec wants the guest to use."""
    guest = amounts.to_bytes(vmi.spec.domain.memory.guest)
    return max(0, min(guest - plugging.boot_memory(vmi), plugging.pluggable_memory(vmi)))


def memory_update(vmi: VirtualMachineInstance, shape: Shape, requested_bytes: int) -> str:
    """The XML of the memory device with another requested size; libvirt finds the device by its address."""
    device = memorydevices.device(vmi, requested_bytes)[0]
    device.append(element("address", dict(shape.address)))
    return etree.tostring(device, encoding="unicode")


def current_topology(vmi: VirtualMachineInstance, shape: Shape | None) -> CPUTopology:
    """The topology of the CPUs that run; before it is known, what was reported, or the guest started with."""
    sockets, cores, threads = topology(vmi.spec.domain)
    if shape is not None:
        sockets = max(1, shape.vcpus // (cores * threads))
    elif vmi.status.current_cpu_topology not in (None, CPUTopology()):
        return vmi.status.current_cpu_topology or CPUTopology()
    return CPUTopology(cores=cores, sockets=sockets, threads=threads)


def memory_status(vmi: VirtualMachineInstance, shape: Shape | None) -> MemoryStatus:
    """The guest's memory at boot, as requested, and as the guest uses it."""
    reported = vmi.status.memory
    if reported is None or reported == MemoryStatus(memory_overhead=reported.memory_overhead):
        given = vmi.spec.domain.memory.guest
        guest = str(given) if given is not None else str(memory_bytes(vmi.spec.domain))
        overhead = reported.memory_overhead if reported is not None else None
        reported = MemoryStatus(
            guest_at_boot=guest, guest_current=guest, guest_requested=guest, memory_overhead=overhead
        )
    most = plugging.pluggable_memory(vmi)
    if shape is None or not shape.address or not most:
        return reported
    boot = plugging.boot_memory(vmi)
    requested, current = (min(count, most) for count in (shape.requested_bytes, shape.current_bytes))
    return MemoryStatus(
        guest_at_boot=reported.guest_at_boot,
        guest_current=_text(boot + current, reported.guest_at_boot),
        guest_requested=_text(boot + requested, reported.guest_at_boot),
        memory_overhead=reported.memory_overhead,
    )


def _text(count: int, at_boot: str | int | None) -> str | int | None:
    """`count` bytes, as ``guestAtBoot`` is written where they are equal."""
    return at_boot if count == amounts.to_bytes(at_boot) else amounts.binary(count)
