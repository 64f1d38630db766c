"""Histograms of times."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kubecore.runtime.latencies import Latencies


def test_times_are_counted_up_to_the_limits_of_their_buckets() -> None:
    registry, times = CollectorRegistry(), Latencies("took_seconds", "Took", ("verb",), (0.1, 1))
    registry.register(times)
    for seconds in (0.1, 0.2, 1, 7):
        times.observe(("GET",), seconds)
    found = {
        limit: registry.get_sample_value("took_seconds_bucket", {"verb": "GET", "le": limit})
        for limit in ("0.1", "1.0", "+Inf")
    }
    assert found == {"0.1": 1, "1.0": 3, "+Inf": 4}
    assert registry.get_sample_value("took_seconds_sum", {"verb": "GET"}) == 0.1 + 0.2 + 1 + 7
    assert registry.get_sample_value("took_seconds_count", {"verb": "GET"}) == 4


def test_there_are_no_more_labels_than_a_number() -> None:
    times = Latencies("took_seconds", "Took", ("verb",), (0.1,), most=2)
    for verb in ("GET", "LIST", "PATCH", "GET"):
        times.observe((verb,), 1)
    [family] = times.collect()
    counts = {s.labels["verb"]: s.value for s in family.samples if s.name == "took_seconds_count"}
    assert counts == {"GET": 2, "LIST": 1}
