"""Metrics that are told only for a time, for example while a component leads, and the text that tells all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of what :func:`exposition` gives."""

_WHOLE_LIMIT = re.compile(rb'(\ble="[0-9]+)\.0"')


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics as the text that Prometheus reads.

    Limits of histograms are written as Go's clients write them (``le="1"``, not ``le="1.0"``): Prometheus
    before version 3 keeps them as they are, and queries name them.
    """
    return _WHOLE_LIMIT.sub(rb'\1"', generate_latest(registry))


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
