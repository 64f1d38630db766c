"""Metrics that are told only for a time, for example while a component leads, and the text that tells all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of what :func:`exposition` gives."""

_WHOLE_LIMIT = re.compile(rb'(\ble="[0-9]+)\.0"')
_PLAIN_COUNTER = re.compile(rb"^# HELP (\S+)_total (.*)\n# TYPE \1_total counter\n(?=\1[{ ])", re.MULTILINE)
"""What the client writes before a counter whose own name does not end in ``_total``."""


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics as the text that Prometheus reads.

    Limits of histograms are written as Go's clients write them (``le="1"``, not ``le="1.0"``): Prometheus
    before version 3 keeps them as they are, and queries name them. Counters keep the names that they have,
    as with Go's clients.
    """
    text = _WHOLE_LIMIT.sub(rb'\1"', generate_latest(registry))
    return _PLAIN_COUNTER.sub(rb"# HELP \1 \2\n# TYPE \1 counter\n", text)


def add_sample(metric: Metric, labels: Mapping[str, str], value: float) -> None:
    """Add a value under the metric's own name. Labels without a value are left out, as in KubeVirt."""
    metric.add_sample(metric.name, {key: text for key, text in labels.items() if text}, value)


@contextmanager
def collected(registry: CollectorRegistry, *collectors: Collector) -> Iterator[None]:
    """The metrics of `collectors` are in `registry` as long as this lasts."""
    for collector in collectors:
        registry.register(collector)
    try:
        yield
    finally:
        for collector in collectors:
            registry.unregister(collector)


class RecentCounts:
    """A counter of things that tenants name: of no more than `most` of them, those that were counted last.

    What is forgotten begins anew at 0, as Prometheus expects of a process that was restarted.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str], most: int) -> None:
        """`name` ends in ``_total``."""
        self._name = name
        self._text = text
        self._labels = labels
        self._most = most
        self._counts: dict[tuple[str, ...], int] = {}
        """The one that was counted last comes last."""

    def add(self, *values: str) -> None:
        """Count one more; `values` are those of the labels."""
        self._counts[values] = self._counts.pop(values, 0) + 1
        while len(self._counts) > self._most:
            del self._counts[next(iter(self._counts))]

    def forget(self, *values: str) -> None:
        """No longer tell of what has these values, if anything has."""
        self._counts.pop(values, None)

    def describe(self) -> list[Metric]:
        """Nothing, so that a process may have two of the same name."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The counter now. May be called in another thread than `add`."""
        metric = Metric(self._name.removesuffix("_total"), self._text, "counter")
        for values, count in self._counts.copy().items():
            metric.add_sample(self._name, dict(zip(self._labels, values, strict=True)), count)
        yield metric
