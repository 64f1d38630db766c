"""Components, health and logs."""

from __future__ import annotations

import asyncio
import io
import logging
from dataclasses import dataclass

import orjson
import pytest
from prometheus_client import CollectorRegistry, Counter

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
