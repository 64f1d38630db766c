"""The metrics of virt-api: who is connected to guests, and how many VMs were created through it.

Names and labels are KubeVirt's. Tenants choose the names of what is counted, and may choose others all the
time: only the last ones are remembered once nobody is connected.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from prometheus_client.core import Metric

from kubecore.runtime.metrics import RecentCounts, add_sample

CONNECTIONS: Mapping[str, tuple[str, str]] = {
    "console": ("kubevirt_console_active_connections", "Connections to serial consoles"),
    "portforward": ("kubevirt_portforward_active_tunnels", "Connections to ports of guests"),
    "usbredir": ("kubevirt_usbredir_active_connections", "Connections of USB devices"),
    "vnc": ("kubevirt_vnc_active_connections", "Connections to displays"),
}
"""The subresources whose connections are counted, and their metrics."""
LAST_CONNECTION = "kubevirt_vmi_last_api_connection_timestamp_seconds"
CREATED = "kubevirt_vm_created_by_pod_total"
NAMES = (*(name for name, _ in CONNECTIONS.values()), LAST_CONNECTION, CREATED)
MOST_REMEMBERED = 1000

_Instance = tuple[str, str]
"""Namespace and name."""
_Value = TypeVar("_Value")


class ApiMetrics:
    """Counts in one process, for as long as it runs."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._open: dict[str, Counter[_Instance]] = {kind: Counter() for kind in CONNECTIONS}
        self._known: dict[str, dict[_Instance, None]] = {kind: {} for kind in CONNECTIONS}
        """The instances that somebody was connected to, the last one last."""
        self._ended: dict[_Instance, float] = {}
        self._created = RecentCounts(
            CREATED, "VMs that were created through this virt-api", ("namespace",), MOST_REMEMBERED
        )

    @contextmanager
    def connection(self, kind: str, namespace: str, name: str) -> Iterator[None]:
        """A connection to an instance, which lasts as long as the context; other kinds are not counted."""
        counts, instance = self._open.get(kind), (namespace, name)
        if counts is None:
            yield
            return
        counts[instance] += 1
        try:
            yield
        finally:
            counts[instance] -= 1
            if not counts[instance]:
                del counts[instance]
            _remember(self._known[kind], instance, None)
            _remember(self._ended, instance, float(int(self._clock())))

    def created(self, namespace: str) -> None:
        """A VM was admitted that is to be created in `namespace`."""
        self._created.add(namespace)

    def describe(self) -> list[Metric]:
        """Nothing: which metrics there are is known when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        for kind, (name, text) in CONNECTIONS.items():
            metric, counts = Metric(name, text, "gauge"), self._open[kind].copy()
            for namespace, vmi in {**self._known[kind].copy(), **counts}:
                add_sample(metric, {"namespace": namespace, "vmi": vmi}, counts[namespace, vmi])
            yield metric
        last = Metric(LAST_CONNECTION, "When the last connection to a guest ended", "gauge")
        for (namespace, vmi), moment in self._ended.copy().items():
            add_sample(last, {"namespace": namespace, "vmi": vmi}, moment)
        yield last
        yield from self._created.collect()


def _remember(known: dict[_Instance, _Value], instance: _Instance, value: _Value) -> None:
    """Put the newest last, and forget the oldest of too many."""
    known.pop(instance, None)
    known[instance] = value
    if len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]
