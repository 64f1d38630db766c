"""Which CPUs of the node the guest's threads run on: pins, NUMA nodes, and which are scheduled in real time.

With dedicated CPUs the pod has CPUs that nobody else uses: one for each virtual CPU, then those of a
supplemental pool of I/O threads, then one or two for the emulator's own threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubecore.objects.quantity import Quantity
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.compute.domain import iothreads
from virtplane.compute.domain.context import DomainContext, HostCpu
from virtplane.compute.domain.processor import memory_bytes, vcpu_count
from virtplane.compute.domain.xml import Element, element

_RANGE = re.compile(r"(?P<not>\^?)(?P<first>[0-9]{1,4})(?:-(?P<last>[0-9]{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pins:
    """CPUs of the node."""

    vcpus: tuple[int, ...]
    """By number of the virtual CPU."""
    pool: tuple[int, ...]
    """Of the supplemental pool of I/O threads."""
    emulator: tuple[int, ...]
    """Empty where the emulator's threads run on any CPU of the pod."""


def pins(domain: DomainSpec, cpus: Sequence[HostCpu]) -> Pins | None:
    """The pins of a guest whose pod has `cpus`; None without dedicated CPUs.

    Threads of one core are neighbours, as in the guest. Raises ValueError for too few CPUs.
    """
    if not domain.cpu.dedicated_cpu_placement:
        return None
    count = vcpu_count(domain)
    pool = 0
    if domain.io_threads_policy == iothreads.POOL:
        pool = domain.io_threads.supplemental_pool_thread_count or 0
    emulator = 1 if domain.cpu.isolate_emulator_thread else 0
    if len(cpus) < count + pool + emulator:
        raise ValueError(
            f"the guest needs {count + pool + emulator} CPUs of its own, but its pod has {len(cpus)}"
        )
    ordered = [cpu.number for cpu in sorted(cpus, key=lambda cpu: (cpu.node, cpu.core, cpu.number))]
    spare = tuple(ordered[count + pool :]) if emulator else ()
    return Pins(tuple(ordered[:count]), tuple(ordered[count : count + pool]), spare)


def render_tuning(domain: DomainSpec, context: DomainContext, io_threads: int) -> list[Element]:
    """``<cputune>`` with the pins, ``<numatune>``; nothing without dedicated CPUs. Raises ValueError."""
    found = pins(domain, context.cpus)
    if found is None:
        return []
    node = element("cputune")
    for number, cpu in enumerate(found.vcpus):
        node.append(element("vcpupin", {"vcpu": number, "cpuset": cpu}))
    if found.emulator:
        node.append(element("emulatorpin", {"cpuset": _set(found.emulator)}))
    for number, cpus in enumerate(_thread_pins(found, io_threads), start=1):
        node.append(element("iothreadpin", {"iothread": number, "cpuset": _set(cpus)}))
    cells = numa_cells(domain, context)
    return [node, _numatune(cells)] if cells else [node]


def _thread_pins(found: Pins, count: int) -> list[tuple[int, ...]]:
    """The CPUs of each I/O thread: one of the pool's, or a share of those of the virtual CPUs."""
    if found.pool:
        return [(found.pool[number % len(found.pool)],) for number in range(count)]
    cpus = found.vcpus
    return [tuple(cpus[number::count]) or (cpus[number % len(cpus)],) for number in range(count)]


def realtime_vcpus(domain: DomainSpec) -> tuple[int, ...]:
    """The virtual CPUs with real-time scheduling: those of the mask (``0-3,^1``), or all.

    Raises ValueError for a mask that names others.
    """
    realtime, count = domain.cpu.realtime, vcpu_count(domain)
    mask = (realtime.mask or "") if realtime is not None else ""
    if not mask:
        return tuple(range(count))
    wanted: set[int] = set()
    dropped: set[int] = set()
    for part in mask.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"the mask {mask!r} of real-time CPUs is not one such as 0-3,^1")
        first, last = int(found["first"]), int(found["last"] or found["first"])
        if last >= count:
            raise ValueError(f"the mask {mask!r} names CPUs that the guest does not have: it has {count}")
        (dropped if found["not"] else wanted).update(range(first, last + 1))
    return tuple(sorted(wanted - dropped))


@dataclass(frozen=True, slots=True)
class Cell:
    """A NUMA node of the guest, with all of its memory and CPUs on one node of the host."""

    host_node: int
    vcpus: tuple[int, ...]
    memory_bytes: int


def numa_cells(domain: DomainSpec, context: DomainContext) -> list[Cell]:
    """The guest's NUMA nodes, one for each node of the host that its CPUs are on; none unless it asks.

    The memory is divided equally, in whole huge pages.
    """
    if not domain.cpu.shows_numa_nodes:
        return []
    found = pins(domain, context.cpus)
    if found is None:
        return []
    node_of: Mapping[int, int] = {cpu.number: cpu.node for cpu in context.cpus}
    nodes = sorted({node_of[cpu] for cpu in found.vcpus})
    hugepages = domain.memory.hugepages
    page = Quantity.parse(hugepages.page_size).value if hugepages is not None and hugepages.page_size else 1
    pages, rest = divmod(memory_bytes(domain) // page, len(nodes))
    return [
        Cell(
            node,
            tuple(number for number, cpu in enumerate(found.vcpus) if node_of[cpu] == node),
            (pages + (index < rest)) * page,
        )
        for index, node in enumerate(nodes)
    ]


def add_numa(domain: DomainSpec, context: DomainContext, cpu: Element) -> None:
    """Give the ``<cpu>`` element the guest's NUMA nodes."""
    cells = numa_cells(domain, context)
    if cells:
        numa = element("numa")
        for number, cell in enumerate(cells):
            attributes = {"id": number, "cpus": _set(cell.vcpus), "memory": cell.memory_bytes, "unit": "b"}
            numa.append(element("cell", attributes))
        cpu.append(numa)


def _numatune(cells: Sequence[Cell]) -> Element:
    node = element("numatune")
    node.append(element("memory", {"mode": "strict", "nodeset": _set([cell.host_node for cell in cells])}))
    for number, cell in enumerate(cells):
        node.append(element("memnode", {"cellid": number, "mode": "strict", "nodeset": cell.host_node}))
    return node


def _set(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
