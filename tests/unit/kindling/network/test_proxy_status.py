"""What the service proxy says of itself on each node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.namespaces import Namespace, namespaces

from kindling.network.proxy_status import HEALTH_PORT, STATUS_PORT, ProxyStatus

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip"),
]

START = datetime(2026, 1, 1, tzinfo=UTC)
ADDRESS = "192.0.2.1"


class _Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture(scope="module")
def node() -> Iterator[Namespace]:
    """A node's network namespace, with an address beside those of the loopback."""
    with namespaces("node") as (made,):
        made.run("ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        yield made


def status(node: Namespace, clock: _Clock) -> ProxyStatus:
    return ProxyStatus({"node01": Path("/run/netns") / node.name}, has_ipv6=True, now=clock)


async def asked(node: Namespace, port: int, path: str, address: str = "127.0.0.1") -> tuple[str, bytes]:
    """The status line and the body of an answer."""

    def ask() -> bytes:
        with socket.create_connection((address, port), timeout=5) as made:
            made.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return made.makefile("rb").read()

    head, _, body = (await asyncio.to_thread(node.inside, ask)).partition(b"\r\n\r\n")
    return head.split(b"\r\n", 1)[0].decode(), body


async def test_a_node_is_healthy_until_its_rules_are_old_for_a_minute(node: Namespace) -> None:
    clock = _Clock()
    async with status(node, clock) as served:
        await served.serve()
        served.note("node01", is_loaded=False)
        clock.now += timedelta(minutes=1)
        line, body = await asked(node, HEALTH_PORT, "/healthz")
        assert line == "HTTP/1.1 200 OK"
        assert json.loads(body) == {
            "lastUpdated": START.isoformat(),
            "currentTime": clock.now.isoformat(),
        }
        clock.now += timedelta(seconds=1)
        served.note("node01", is_loaded=False)
        for path in ("/healthz", "/livez?verbose"):
            line, _ = await asked(node, HEALTH_PORT, path)
            assert line == "HTTP/1.1 503 Service Unavailable"
        served.note("node01", is_loaded=True)
        line, body = await asked(node, HEALTH_PORT, "/healthz")
        assert line == "HTTP/1.1 200 OK"
        assert json.loads(body)["lastUpdated"] == clock.now.isoformat()


async def test_health_is_told_on_every_address_and_the_mode_to_the_node_alone(node: Namespace) -> None:
    async with status(node, _Clock()) as served:
        await served.serve()
        for address in ("127.0.0.1", "::1", ADDRESS):
            line, _ = await asked(node, HEALTH_PORT, "/healthz", address)
            assert line == "HTTP/1.1 200 OK"
        assert await asked(node, STATUS_PORT, "/proxyMode") == ("HTTP/1.1 200 OK", b"nftables")
        with pytest.raises(ConnectionRefusedError):
            await asked(node, STATUS_PORT, "/proxyMode", ADDRESS)
        for port in (HEALTH_PORT, STATUS_PORT):
            line, _ = await asked(node, port, "/other")
            assert line == "HTTP/1.1 404 Not Found"


async def test_a_taken_port_is_logged_once_and_tried_again(
    node: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    async with status(node, _Clock()) as served:
        with node.inside(lambda: socket.create_server(("", HEALTH_PORT))):
            await served.serve()
            await served.serve()
            text = f"serving the state of the service proxy on port {HEALTH_PORT} of node node01 failed"
            assert caplog.text.count(text) == 1
            assert (await asked(node, STATUS_PORT, "/healthz"))[1] == b"ok"
        await served.serve()
        assert (await asked(node, HEALTH_PORT, "/healthz"))[0] == "HTTP/1.1 200 OK"
