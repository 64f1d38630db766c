"""Histograms of times by labels, in less memory than the metrics library's."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import HistogramMetricFamily, Metric


@dataclass(slots=True)
class _Times:
    counts: array[int]
    """By bucket, of which the last has no limit."""
    sum: float = 0.0


class Latencies:
    """A histogram of no more than `most` sets of labels; what comes later is not observed.

    One set takes half a kilobyte, where the library keeps an object with a lock for each bucket.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], limits: Sequence[float], most: int = 1000
    ) -> None:
        """`limits` are those of the buckets, in seconds and ascending order."""
        self._name = name
        self._text = text
        self._labels = labels
        self._limits = limits
        self._most = most
        self._found: dict[tuple[str, ...], _Times] = {}

    def observe(self, values: tuple[str, ...], seconds: float) -> None:
        """Note a time; `values` are those of the labels."""
        times = self._found.get(values)
        if times is None:
            if len(self._found) >= self._most:
                return
            times = self._found[values] = _Times(array("Q", bytes(8 * (len(self._limits) + 1))))
        times.counts[bisect_left(self._limits, seconds)] += 1
        times.sum += seconds

    def describe(self) -> list[Metric]:
        """Nothing: it is told when it is collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The histogram now. May be called in another thread than `observe`."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        limits = [*map(str, map(float, self._limits)), "+Inf"]
        for values, times in self._found.copy().items():
            total, buckets = 0, []
            for limit, count in zip(limits, times.counts, strict=True):
                total += count
                buckets.append((limit, float(total)))
            family.add_metric(values, buckets, times.sum)
        yield family
