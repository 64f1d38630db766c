"""Metrics that are told only for a time, for example while a component leads, and the text that tells all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
