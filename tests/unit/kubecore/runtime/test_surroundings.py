"""Components, health and logs."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from kubecore.client import Client, ClientConfig
from kubecore.logs import JsonFormatter, TextFormatter, set_up_logging
from kubecore.runtime import (
    Component,
    ComponentEnded,
    Context,
    Health,
    run_components,
    serve_health,
)


@dataclass
class Part:
    name: str
    seconds: float

    async def run(self, context: Context) -> None:
        assert context.client(self.name) is context.client(self.name)
        await asyncio.sleep(self.seconds)


@pytest.mark.looptime
async def test_when_a_component_ends_all_end() -> None:
    made: list[str] = []

    def factory(name: str) -> Client:
        made.append(name)
        return Client(ClientConfig(server=f"http://{name}"))

    parts = [Part("long", 1000), Part("short", 5)]
    assert all(isinstance(part, Component) for part in parts)
    with pytest.raises(ExceptionGroup) as caught:
        await run_components(parts, Context(factory))
    assert isinstance(caught.value.exceptions[0], ComponentEnded)
    assert asyncio.get_running_loop().time() < 10
    assert sorted(made) == ["long", "short"]


async def test_metrics_that_wait_for_a_disk_keep_nobody_else_waiting() -> None:
    from aiohttp import ClientSession

    collecting, go_on = threading.Event(), threading.Event()
    at_a_time: list[int] = []

    class Slow:
        def collect(self) -> Iterator[Metric]:
            at_a_time.append(1)
            collecting.set()
            assert go_on.wait(60)
            yield GaugeMetricFamily("room", "Room", len(at_a_time))
            at_a_time.clear()

    registry = CollectorRegistry()
    registry.register(Slow())
    async with (
        serve_health(Health(), 0, host="127.0.0.1", registry=registry, metrics_wait=True) as port,
        ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        asked = [asyncio.create_task(session.get("/metrics")) for _ in range(3)]
        try:
            assert await asyncio.to_thread(collecting.wait, 60)
            async with session.get("/healthz") as response:
                assert response.status == 200
        finally:
            go_on.set()
        for response in await asyncio.gather(*asked):
            assert "room 1.0" in await response.text()


async def test_health_is_served_with_every_check_named() -> None:
    from aiohttp import ClientSession

    health, registry = Health(), CollectorRegistry()
    Counter("things", "Things", registry=registry).inc()
    problem = ""
    health.add_live("loop", lambda: "")
    health.add_ready("caches", lambda: problem)
    async with (
        serve_health(health, 0, host="127.0.0.1", registry=registry) as port,
        ClientSession(f"http://127.0.0.1:{port}") as session,
        ClientSession() as plain,
    ):
        async with session.get("/readyz") as response:
            assert (response.status, await response.text()) == (200, "ok")
        problem = "not synced"
        async with session.get("/readyz") as response:
            assert response.status == 500
            assert await response.text() == (
                "[+]loop ok\n[-]caches failed: not synced\nreadyz check failed\n"
            )
        async with session.get("/healthz") as response:
            assert response.status == 200
        async with session.get("/metrics") as response:
            assert "things_total 1.0" in await response.text()
        async with plain.get(f"http://127.0.0.1:{port}//healthz") as response:
            assert (response.status, response.url.path) == (200, "/healthz")
        health.add_detail("config-resource-version", lambda: "7")
        async with session.get("/healthz") as response:
            assert await response.json() == {"health": "ok", "config-resource-version": "7"}
        async with session.get("/readyz") as response:
            assert (await response.text()).startswith("[+]loop ok")


def test_log_lines_are_json_with_extra_fields() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter("virt-handler"))
    logger = logging.Logger("domain")
    logger.addHandler(handler)
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("cannot %s", "start", extra={"vm": "lab/a"})
    entry = orjson.loads(stream.getvalue())
    assert (entry["level"], entry["component"], entry["logger"]) == ("error", "virt-handler", "domain")
    assert (entry["msg"], entry["vm"]) == ("cannot start", "lab/a")
    assert "ValueError: broken" in entry["stacktrace"]


def test_log_lines_may_be_text() -> None:
    record = logging.LogRecord("a.b", logging.INFO, "f", 1, "hello %s", ("you",), None)
    assert TextFormatter().format(record).endswith("Z INFO a.b: hello you")


def test_setting_up_logging_replaces_handlers() -> None:
    root = logging.getLogger()
    saved, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        set_up_logging("c", form="text", stream=stream)
        logging.getLogger("x").info("hello")
    finally:
        root.handlers[:] = saved
        root.setLevel(level)
        logging.captureWarnings(False)
    assert "hello" in stream.getvalue()
