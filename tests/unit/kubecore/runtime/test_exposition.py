"""The text of metrics, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import Metric

from kubecore.runtime.health import Health, serve_health
from kubecore.runtime.metrics import add_sample, exposition


def test_limits_of_histograms_are_written_as_go_writes_them() -> None:
    registry = CollectorRegistry()
    Histogram("wait_seconds", "Wait", registry=registry, buckets=(1e-8, 0.5, 1, 20, 3600)).observe(2)
    lines = exposition(registry).decode().splitlines()
    limits = [line.split('"')[1] for line in lines if line.startswith("wait_seconds_bucket")]
    assert limits == ["1e-08", "0.5", "1", "20", "3600", "+Inf"]


def test_other_labels_stay_as_they_are() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("room", "Room", ("scale", "text"), registry=registry)
    gauge.labels("1.0", 'le="2.0"').set(1)
    assert r'room{scale="1.0",text="le=\"2.0\""} 1.0' in exposition(registry).decode()


def test_counters_keep_their_names() -> None:
    class Moments:
        def collect(self) -> Iterator[Metric]:
            for name in ("started_seconds", "runs"):
                moment = Metric(name, "When,\nand how often", "counter")
                ending = "_total" if name == "runs" else ""
                moment.add_sample(name + ending, {"name": "vm"}, 7)
                yield moment

    registry = CollectorRegistry()
    registry.register(Moments())
    lines = exposition(registry).decode().splitlines()
    assert lines == [
        r"# HELP started_seconds When,\nand how often",
        "# TYPE started_seconds counter",
        'started_seconds{name="vm"} 7.0',
        r"# HELP runs_total When,\nand how often",
        "# TYPE runs_total counter",
        'runs_total{name="vm"} 7.0',
    ]


def test_labels_without_a_value_are_left_out() -> None:
    metric = Metric("room", "Room", "gauge")
    add_sample(metric, {"name": "vm", "os": ""}, 1)
    [sample] = metric.samples
    assert (sample.name, sample.labels, sample.value) == ("room", {"name": "vm"}, 1)


async def test_a_process_serves_this_text_whatever_form_is_asked_for() -> None:
    registry = CollectorRegistry()
    Histogram("wait_seconds", "Wait", registry=registry, buckets=(1,))
    async with (
        serve_health(Health(), 0, host="127.0.0.1", registry=registry) as port,
        ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
        async with session.get("/metrics", headers=accept) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert 'wait_seconds_bucket{le="1"} 0.0' in await response.text()
