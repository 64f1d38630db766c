"""The metrics of guests' processors, memory, disks and networks, as libvirt tells them when Prometheus asks,
and of their file systems, as their agents told last.

Names and labels are KubeVirt's: each label of an instance is one of its metrics, too. What a launcher's
libvirt says is its tenant's word; only whole numbers of known names are taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from prometheus_client.core import Metric

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.libvirtd.agentanswers import LOADS, AgentFigures
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.podlinks import wires

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 3.0
"""A guest whose libvirt does not answer in this time has no metrics this time."""
_ASK_SECONDS, _COLLECT_SECONDS = 8.0, 9.0
"""Prometheus waits ten by default."""
_AT_ONCE = 16
_MOST_DEVICES = 64
_LONGEST_NAME = 64
_MOST_LABELS = 64
_NOT_IN_NAMES = re.compile(r"[./-]")
_KIB, _NANOSECONDS = 1024.0, 1e-9
_MIB = _KIB * 1024
_VCPU_STATES = {0: "offline", 1: "running", 2: "blocked"}


Sample: TypeAlias = tuple["Figure", Mapping[str, str], float]
"""A metric, its labels and its value."""


class Statistics(Protocol):
    """A connection to a guest's libvirt."""

    async def statistics(self, name: str) -> Mapping[str, Any]:
        """What libvirt counts of a domain. Raises HypervisorError."""
        ...


@dataclass(frozen=True, slots=True)
class Guest:
    """A running guest."""

    vmi: VirtualMachineInstance
    domain: str
    connection: Statistics
    agent: AgentFigures = field(default_factory=AgentFigures)


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric: where libvirt tells it, and in which unit."""

    name: str
    key: str
    factor: float = 1.0

    @property
    def type(self) -> str:
        """The type of the metric."""
        return "counter" if self.name.endswith("_total") else "gauge"


_OF_GUEST = (
    Figure("cpu_usage_seconds_total", "cpu.time", _NANOSECONDS),
    Figure("cpu_user_usage_seconds_total", "cpu.user", _NANOSECONDS),
    Figure("cpu_system_usage_seconds_total", "cpu.system", _NANOSECONDS),
    Figure("memory_resident_bytes", "balloon.rss", _KIB),
    Figure("memory_available_bytes", "balloon.available", _KIB),
    Figure("memory_unused_bytes", "balloon.unused", _KIB),
    Figure("memory_cached_bytes", "balloon.disk_caches", _KIB),
    Figure("memory_actual_balloon_bytes", "balloon.current", _KIB),
    Figure("memory_usable_bytes", "balloon.usable", _KIB),
    Figure("memory_domain_bytes", "balloon.maximum", _KIB),
    Figure("memory_swap_in_traffic_bytes", "balloon.swap_in", _KIB),
    Figure("memory_swap_out_traffic_bytes", "balloon.swap_out", _KIB),
    Figure("memory_pgmajfault_total", "balloon.major_fault"),
    Figure("memory_pgminfault_total", "balloon.minor_fault"),
    Figure("dirty_rate_bytes_per_second", "dirtyrate.megabytes_per_second", _MIB),
)
_OF_CPU = (
    Figure("vcpu_seconds_total", "time", _NANOSECONDS),
    Figure("vcpu_wait_seconds_total", "wait", _NANOSECONDS),
    Figure("vcpu_delay_seconds_total", "delay", _NANOSECONDS),
)
_OF_CARD = tuple(
    Figure(f"network_{word}_{what}_total", f"{short}.{key}")
    for word, short in (("receive", "rx"), ("transmit", "tx"))
    for what, key in (
        ("bytes", "bytes"),
        ("packets", "pkts"),
        ("errors", "errs"),
        ("packets_dropped", "drop"),
    )
)
_OF_DISK = (
    Figure("storage_iops_read_total", "rd.reqs"),
    Figure("storage_iops_write_total", "wr.reqs"),
    Figure("storage_read_traffic_bytes_total", "rd.bytes"),
    Figure("storage_write_traffic_bytes_total", "wr.bytes"),
    Figure("storage_read_times_seconds_total", "rd.times", _NANOSECONDS),
    Figure("storage_write_times_seconds_total", "wr.times", _NANOSECONDS),
    Figure("storage_flush_requests_total", "fl.reqs"),
    Figure("storage_flush_times_seconds_total", "fl.times", _NANOSECONDS),
)
_TRAFFIC = "network_traffic_bytes_total"
_OF_TRAFFIC = {way: Figure(_TRAFFIC, f"{way}.bytes") for way in ("rx", "tx")}
_AFFINITY = Figure("node_cpu_affinity", "")
_OF_AGENT = {
    "total": Figure("filesystem_capacity_bytes", ""),
    "used": Figure("filesystem_used_bytes", ""),
    **{name: Figure(f"guest_load_{name.removeprefix('load')}", "") for name in LOADS},
}
_ALL = (_OF_GUEST, _OF_CPU, _OF_CARD, _OF_DISK, _OF_AGENT.values(), (_AFFINITY, _OF_TRAFFIC["rx"]))
NAMES = tuple(f"kubevirt_vmi_{each.name}" for figures in _ALL for each in figures)


class GuestMetrics:
    """Collects what libvirt counts of the guests of this node."""

    def __init__(self, node: str, guests: Callable[[], Iterable[Guest]]) -> None:
        self._node = node
        self._guests = guests
        self._cpus = os.cpu_count() or 1
        self._loop = asyncio.get_running_loop()
        self._silent: set[str] = set()
        """The domains of which nothing was heard when they were asked last."""

    def describe(self) -> list[Metric]:
        """Nothing: which metrics there are is known when they are collected."""
        return []

    def collect(self) -> list[Metric]:
        """The metrics now. It waits for the event loop, so it must not be called in its thread."""
        asked = asyncio.run_coroutine_threadsafe(self.ask(), self._loop)
        try:
            return asked.result(_COLLECT_SECONDS)
        except (TimeoutError, futures.CancelledError):
            asked.cancel()
            logger.warning("virt-handler is too busy to ask for metrics of guests; Prometheus gets none")
            return []

    async def ask(self) -> list[Metric]:
        """Ask libvirt of every guest; those that do not answer are left out, and wait for the others the
        next time.
        """
        slots = asyncio.Semaphore(_AT_ONCE)
        found: dict[str, Metric] = {}
        guests = sorted(self._guests(), key=lambda guest: guest.domain in self._silent)
        self._silent &= {guest.domain for guest in guests}

        async def one(guest: Guest) -> None:
            async with slots:
                counted = await self._counted(guest)
            for figure, labels, value in samples(guest.vmi, self._node, counted, self._cpus):
                _add(found, figure, labels, value)
            for figure, labels, value in agent_samples(guest.vmi, self._node, guest.agent):
                _add(found, figure, labels, value)

        try:
            async with asyncio.timeout(_ASK_SECONDS), asyncio.TaskGroup() as asking:
                for guest in guests:
                    asking.create_task(one(guest))
        except TimeoutError:
            shown = {"silent": len(self._silent), "guests": len(guests)}
            logger.warning(
                "Daemons of libvirt do not answer; metrics of some guests are missing", extra=shown
            )
        return list(found.values())

    async def _counted(self, guest: Guest) -> Mapping[str, Any]:
        self._silent.add(guest.domain)
        try:
            asked = guest.connection.statistics(guest.domain)
            counted = await asyncio.wait_for(asked, _ANSWER_SECONDS)
        except (HypervisorError, TimeoutError) as error:
            logger.debug("libvirt told nothing of a guest", extra={"vmi": guest.domain, "err": str(error)})
            return {}
        self._silent.discard(guest.domain)
        return counted


def _add(found: dict[str, Metric], figure: Figure, labels: Mapping[str, str], value: float) -> None:
    name = f"kubevirt_vmi_{figure.name}"
    family = name.removesuffix("_total")
    metric = found.get(family)
    if metric is None:
        metric = found[family] = Metric(family, f"{figure.name}, as libvirt or the agent tells", figure.type)
    metric.add_sample(name, dict(labels), value)


def samples(
    vmi: VirtualMachineInstance, node: str, counted: Mapping[str, Any], cpus: int
) -> Iterator[Sample]:
    """The metrics of a guest with their labels, from what libvirt counted (pure); the node has `cpus`."""
    own = labels_of(vmi, node)
    yield from _values(counted, "", _OF_GUEST, own)
    yield from _of_cpus(counted, own, 1 if vmi.spec.domain.cpu.dedicated_cpu_placement else cpus)
    cards = {wire.names.tap: wire.interface.name for wire in wires(vmi)}
    for prefix, name in _devices(counted, "net", cards).items():
        card = {**own, "interface": name}
        yield from _values(counted, prefix, _OF_CARD, card)
        for way, figure in _OF_TRAFFIC.items():
            yield from _values(counted, prefix, (figure,), {**card, "type": way})
    disks = {status.target: status.name for status in vmi.status.volume_status if status.target}
    for prefix, name in _devices(counted, "block", disks).items():
        yield from _values(counted, prefix, _OF_DISK, {**own, "drive": name})


def _of_cpus(counted: Mapping[str, Any], own: Mapping[str, str], places: int) -> Iterator[Sample]:
    """Each virtual processor may run on so many `places`: one of its own, or any of the node's."""
    told = 0
    for number in range(_MOST_DEVICES * 4):
        prefix = f"vcpu.{number}."
        state = counted.get(f"{prefix}state")
        if state is not None:
            words = {"id": str(number), "state": _VCPU_STATES.get(state, "unknown")}
            yield from _values(counted, prefix, _OF_CPU[:1], {**own, **words})
            yield from _values(counted, prefix, _OF_CPU[1:], {**own, "id": str(number)})
            told += 1
    if told:
        yield _AFFINITY, own, told * places


def agent_samples(vmi: VirtualMachineInstance, node: str, told: AgentFigures) -> Iterator[Sample]:
    """The metrics of a guest that its agent has measured (pure)."""
    own = labels_of(vmi, node) if told != AgentFigures() else {}
    for each in told.file_systems:
        place = {"disk_name": each.disk, "mount_point": each.mount_point, "file_system_type": each.kind}
        labels = {**own, **{key: text for key, text in place.items() if text}}
        yield _OF_AGENT["total"], labels, each.total
        yield _OF_AGENT["used"], labels, each.used
    for name, value in told.load.items():
        yield _OF_AGENT[name], own, value


def labels_of(vmi: VirtualMachineInstance, node: str) -> dict[str, str]:
    """The labels that every metric of a guest has (pure).

    Of those of the instance, the first `_MOST_LABELS`: an instance may have a megabyte of them, and each of
    its metrics repeats them.
    """
    given = {
        f"kubernetes_vmi_label_{_NOT_IN_NAMES.sub('_', key)}": value
        for key, value in sorted(vmi.metadata.labels.items())[:_MOST_LABELS]
    }
    return {**given, "node": node, "namespace": vmi.metadata.namespace, "name": vmi.metadata.name}


def _devices(counted: Mapping[str, Any], kind: str, known: Mapping[str, str]) -> dict[str, str]:
    """What each device is called, by where its counts begin: as in `known`, else as libvirt calls it.

    No name is there twice: Prometheus takes a metric with the same labels only once.
    """
    found: dict[str, str] = {}
    for number in range(_MOST_DEVICES):
        name = counted.get(f"{kind}.{number}.name")
        if isinstance(name, str) and name:
            found.setdefault(known.get(name, name[:_LONGEST_NAME]), f"{kind}.{number}.")
    return {prefix: name for name, prefix in found.items()}


def _values(
    counted: Mapping[str, Any], prefix: str, figures: Iterable[Figure], labels: Mapping[str, str]
) -> Iterator[Sample]:
    for figure in figures:
        value = counted.get(prefix + figure.key)
        if isinstance(value, int) and not isinstance(value, bool):
            yield figure, labels, value * figure.factor
