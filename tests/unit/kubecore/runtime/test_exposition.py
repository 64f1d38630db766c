"""The text of metrics, as Prometheus reads it."""

from __future__ import annotations

from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Gauge, Histogram

from kubecore.runtime.health import Health, serve_health
from kubecore.runtime.metrics import exposition


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
