"""Metrics that are told only for a time, for example while a component leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector


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
