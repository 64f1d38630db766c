"""Metrics of work queues, with the names and meanings of client-go's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kubecore.runtime.queue import QueueObserver, WorkQueue

_BUCKETS = tuple(10.0**power for power in range(-8, 2))
"""Seconds: ten nanoseconds to ten seconds."""
_LABELS = ("name",)


class QueueMetrics:
    """The metrics of all queues of a process, by the queues' names; `prefix` begins those of the metrics."""

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{prefix}_{name}", text, _LABELS, registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{prefix}_{name}", text, _LABELS, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"{prefix}_{name}", text, _LABELS, registry=registry, buckets=_BUCKETS)

        self._adds = counter("adds", "Keys that were added, those aside that waited already")
        self._retries = counter("retries", "Keys that were added for a later time")
        self._waits = histogram("queue_duration_seconds", "How long keys waited for a worker")
        self._works = histogram("work_duration_seconds", "How long the work on a key took")
        self._depth = gauge("depth", "Keys that wait for a worker")
        self._unfinished = gauge("unfinished_work_seconds", "How long the work in progress lasts, in sum")
        self._longest = gauge("longest_running_processor_seconds", "How long the longest work lasts")

    def observer(self, name: str) -> QueueObserver:
        """What counts for the queue `name`."""
        return _Observer(
            self._adds.labels(name),
            self._retries.labels(name),
            self._waits.labels(name),
            self._works.labels(name),
        )

    @contextmanager
    def shown(self, name: str, queue: WorkQueue[Any]) -> Iterator[None]:
        """What the queue has at present is told as long as this lasts."""
        gauges = (
            (self._depth, lambda: float(queue.depth)),
            (self._unfinished, lambda: sum(queue.running_seconds())),
            (self._longest, lambda: max(queue.running_seconds(), default=0.0)),
        )
        for gauge, read in gauges:
            gauge.labels(name).set_function(read)
        try:
            yield
        finally:
            for gauge, _ in gauges:
                gauge.remove(name)


class _Observer:
    """Counts for one queue."""

    def __init__(self, adds: Counter, retries: Counter, waits: Histogram, works: Histogram) -> None:
        self.added = adds.inc
        self.retried = retries.inc
        self.waited = waits.observe
        self.worked = works.observe
