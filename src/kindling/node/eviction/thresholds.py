"""Eviction signals, their thresholds, and the conditions of nodes that follow; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from kindling.node.stats.usage import NodeUsage
from kubecore.objects.quantity import BINARY_SI, DECIMAL_SI, Quantity

MEMORY_AVAILABLE = "memory.available"
ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
"""Memory that is left of what all pods together may use, where something is reserved."""
NODEFS_AVAILABLE = "nodefs.available"
NODEFS_INODES_FREE = "nodefs.inodesFree"
IMAGEFS_AVAILABLE = "imagefs.available"
IMAGEFS_INODES_FREE = "imagefs.inodesFree"
PID_AVAILABLE = "pid.available"


@dataclass(frozen=True, slots=True)
class Signal:
    """What runs out: `resource` is its name in messages, `condition` the node's condition."""

    resource: str
    condition: str


SIGNALS: Mapping[str, Signal] = {
    MEMORY_AVAILABLE: Signal("memory", "MemoryPressure"),
    ALLOCATABLE_MEMORY_AVAILABLE: Signal("memory", "MemoryPressure"),
    NODEFS_AVAILABLE: Signal("ephemeral-storage", "DiskPressure"),
    NODEFS_INODES_FREE: Signal("inodes", "DiskPressure"),
    IMAGEFS_AVAILABLE: Signal("ephemeral-storage", "DiskPressure"),
    IMAGEFS_INODES_FREE: Signal("inodes", "DiskPressure"),
    PID_AVAILABLE: Signal("pids", "PIDPressure"),
}
DISK_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.condition == "DiskPressure")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A hard threshold: an amount, or a share of the capacity."""

    signal: str
    quantity: Quantity | None = None
    share: Fraction = Fraction(0)

    @classmethod
    def parse(cls, signal: str, text: str) -> Threshold:
        """``100Mi`` or ``10%``. Raises ValueError."""
        if not text.endswith("%"):
            return cls(signal, Quantity.parse(text))
        share = Fraction(text.removesuffix("%")) / 100
        if not 0 <= share <= 1:
            raise ValueError("a percentage is from 0% to 100%")
        return cls(signal, None, share)

    def amount(self, capacity: Quantity) -> Quantity:
        """The amount, for a capacity."""
        if self.quantity is not None:
            return self.quantity
        return Quantity.of(int(capacity.value * self.share), BINARY_SI)


HARD_DEFAULTS: Mapping[str, Threshold] = {
    signal: Threshold.parse(signal, text)
    for signal, text in {
        MEMORY_AVAILABLE: "100Mi",
        NODEFS_AVAILABLE: "10%",
        NODEFS_INODES_FREE: "5%",
        IMAGEFS_AVAILABLE: "15%",
        IMAGEFS_INODES_FREE: "5%",
    }.items()
}
"""A kubelet's."""
SHARED_DISK_DEFAULTS: Mapping[str, Threshold] = {
    **HARD_DEFAULTS,
    NODEFS_AVAILABLE: Threshold.parse(NODEFS_AVAILABLE, "1Gi"),
    IMAGEFS_AVAILABLE: Threshold.parse(IMAGEFS_AVAILABLE, "1Gi"),
}
"""Where the disk is not the node's alone: that it is nine tenths full says nothing about pods."""


@dataclass(frozen=True, slots=True)
class Observation:
    """How much is available of a signal's resource, and how much there is."""

    available: Quantity
    capacity: Quantity


def observe(usage: NodeUsage) -> dict[str, Observation]:
    """The signals in a node's usage; those of file systems where they were looked at."""
    machine = usage.machine
    found = {
        MEMORY_AVAILABLE: _bytes(machine.memory_available, machine.memory_capacity),
        PID_AVAILABLE: _count(machine.max_processes - machine.processes, machine.max_processes),
    }
    pods = usage.every_pod
    if pods is not None and pods.memory_limit is not None:
        left = max(0, pods.memory_limit - pods.working_set)
        found[ALLOCATABLE_MEMORY_AVAILABLE] = _bytes(left, pods.memory_limit)
    for system, available, inodes in (
        (usage.node_disk, NODEFS_AVAILABLE, NODEFS_INODES_FREE),
        (usage.image_disk, IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE),
    ):
        if system is not None:
            found[available] = _bytes(system.available, system.capacity)
            # Some file systems have as many inodes as they like.
            if system.inodes:
                found[inodes] = _count(system.inodes_free, system.inodes)
    return found


def _bytes(available: int, capacity: int) -> Observation:
    return Observation(Quantity.of(available, BINARY_SI), Quantity.of(capacity, BINARY_SI))


def _count(available: int, capacity: int) -> Observation:
    return Observation(Quantity.of(available, DECIMAL_SI), Quantity.of(capacity, DECIMAL_SI))


def met(thresholds: Mapping[str, Threshold], observations: Mapping[str, Observation]) -> list[Threshold]:
    """The thresholds that are crossed, memory first."""
    crossed = [
        threshold
        for signal, threshold in thresholds.items()
        if (seen := observations.get(signal)) is not None and seen.available < threshold.amount(seen.capacity)
    ]
    return sorted(crossed, key=lambda threshold: SIGNALS[threshold.signal].resource != "memory")


def with_allocatable(thresholds: Mapping[str, Threshold]) -> Mapping[str, Threshold]:
    """The thresholds, of which that of memory holds for what pods may use as well."""
    memory = thresholds.get(MEMORY_AVAILABLE)
    if memory is None or ALLOCATABLE_MEMORY_AVAILABLE in thresholds:
        return thresholds
    return {**thresholds, ALLOCATABLE_MEMORY_AVAILABLE: replace(memory, signal=ALLOCATABLE_MEMORY_AVAILABLE)}


@dataclass
class Pressure:
    """The conditions of pressure, which outlast their cause by the transition period."""

    transition_seconds: float
    _last: dict[str, float] = field(default_factory=dict)

    def update(self, thresholds: Iterable[Threshold], now: float) -> None:
        """Note the thresholds that are crossed now."""
        for threshold in thresholds:
            self._last[SIGNALS[threshold.signal].condition] = now

    def conditions(self, now: float) -> list[str]:
        """The conditions that are true."""
        return sorted(kind for kind, at in self._last.items() if now - at < self.transition_seconds)
