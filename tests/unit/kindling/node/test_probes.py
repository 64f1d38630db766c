"""Probes and hooks against whatever a container may answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kindling.node.pods.runtime_status import ProbeResult
from kindling.node.probes import manager
from kindling.node.probes.handlers import Outcome, Target, perform
from kindling.node.probes.host_names import Found, HostNames
from kindling.node.probes.manager import Listener, ProbeManager
from kindling.node.runtime.interface import ExecResult, RuntimeFailure

_NO_RUNTIME: Any = None
"""Probes over the network ask no runtime."""
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[int]:
    """A server that talks with whoever connects; all its connections have ended afterwards."""
    talks: list[tuple[asyncio.StreamWriter, asyncio.Task[None]]] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await talk(reader, writer)
            writer.close()
            await writer.wait_closed()

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append((writer, asyncio.create_task(converse(reader, writer))))

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for writer, task in talks:
        task.cancel()
        writer.transport.abort()
    await asyncio.gather(*(task for _, task in talks), return_exceptions=True)
    await asyncio.sleep(0)


def saying(*pieces: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return talk


def target(container: dict[str, Any] | None = None) -> Target:
    return Target("id", container or {"name": "c"}, "127.0.0.1")


async def http(talk: Talk, seconds: int = 5) -> Outcome:
    async with listening(talk) as port:
        action = {"httpGet": {"port": port, "path": "/x"}}
        return await perform(_NO_RUNTIME, action, target(), seconds)


async def test_http_answers_count_by_their_status() -> None:
    assert (await http(saying(b"HTTP/1.1 200 OK\r\n\r\nfine"))).success
    assert (await http(saying(b"HTTP/1.0 302 Found\r\n\r\n"))).success
    assert await http(saying(b"HTTP/1.1 503 No\r\n\r\n")) == Outcome(
        False, "HTTP probe failed with statuscode: 503"
    )


@pytest.mark.parametrize(
    "answer",
    [b"", b"\n", b"SSH-2.0-x\r\n", b"HTTP/1.1\r\n", b"HTTP/1.1 9" + b"9" * 5000 + b" x\r\n", b"x" * 200_000],
    ids=["nothing", "an empty line", "another protocol", "no status", "a huge status", "an endless line"],
)
async def test_an_answer_that_is_not_http_is_a_failure(answer: bytes) -> None:
    outcome = await http(saying(answer))
    assert not outcome.success
    assert "malformed" in outcome.output or "broken" in outcome.output or "reset" in outcome.output


async def test_http_probes_ask_as_a_kubelet_does() -> None:
    heads = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(
            b"HTTP/1.1 301 Moved\r\nLocation: /y\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
        )

    async with listening(answer) as port:
        named = [{"name": "Host", "value": "example.com"}, {"name": "X-Key", "value": "a b"}]
        action = {"httpGet": {"port": port, "path": "a%2Fb?c=%20d", "httpHeaders": named}}
        outcome = await perform(None, action, target(), 5)  # type: ignore[arg-type]
    assert outcome == Outcome(True, "ok")
    request, *lines = heads[0].split("\r\n")[:-2]
    assert request == "GET /a%2Fb?c=%20d HTTP/1.1"
    assert sorted(lines) == [
        "Accept: */*",
        "Connection: close",
        "Host: example.com",
        "User-Agent: kube-probe/1.36",
        "X-Key: a b",
    ]


async def test_an_endless_body_is_cut() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    outcome = await http(endless)
    assert outcome.success
    assert len(outcome.output) <= 10 * 1024


async def test_a_server_that_never_answers_fails_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        action = {"httpGet": {"port": silent.getsockname()[1]}}
        outcome = await perform(_NO_RUNTIME, action, target(), 0)
    assert "context deadline exceeded" in outcome.output
    assert not outcome.success


async def test_tcp_probes_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        named = {"name": "c", "ports": [{"name": "web", "containerPort": port}]}
        action = {"tcpSocket": {"port": "web"}}
        assert (await perform(_NO_RUNTIME, action, target(named), 1)).success
    closed = await perform(_NO_RUNTIME, {"tcpSocket": {"port": port}}, target(), 1)
    assert closed == Outcome(False, f"dial tcp 127.0.0.1:{port}: connect: connection refused")


async def test_a_host_is_found_by_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        action = {"tcpSocket": {"host": "localhost", "port": server.getsockname()[1]}}
        assert (await perform(_NO_RUNTIME, action, target(), 5)).success
    async with listening(saying(b"HTTP/1.1 200 OK\r\n\r\nfine")) as port:
        action = {"httpGet": {"host": "localhost", "port": port}}
        assert (await perform(_NO_RUNTIME, action, target(), 5)).success


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "nothing.invalid"])
async def test_a_host_that_cannot_be_a_name_is_a_failure_of_the_handler(host: str) -> None:
    """An exception would have a container with such a hook never stop."""
    for kind in ("tcpSocket", "httpGet"):
        assert not (await perform(_NO_RUNTIME, {kind: {"host": host, "port": 80}}, target(), 30)).success


async def test_names_that_no_server_answers_for_keep_nobody_else_waiting() -> None:
    begun: list[str] = []
    answering = threading.Event()

    def look_up(host: str) -> Found:
        begun.append(host)
        if host.endswith("silent.example"):
            answering.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    names = HostNames(look_up)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            for kind in ("tcpSocket", "httpGet"):
                for number in range(20):
                    action = {kind: {"host": f"{number}.silent.example", "port": port}}
                    assert not (await perform(_NO_RUNTIME, action, target(), 0, names)).success
            assert len(begun) == 1
            other = Target("other", {"name": "c"}, "127.0.0.1")
            action = {"tcpSocket": {"host": "answering.example", "port": port}}
            assert (await perform(_NO_RUNTIME, action, other, 5, names)).success
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 5) == "done"
            answering.set()
            action = {"tcpSocket": {"host": "answering.example", "port": port}}
            assert (await perform(_NO_RUNTIME, action, target(), 5, names)).success
    finally:
        answering.set()


class Runtime:
    """Commands that end as told."""

    def __init__(self, *results: ExecResult | Exception) -> None:
        self._results = list(results)

    async def exec_sync(self, *_: object) -> ExecResult:
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, Exception):
            raise result
        return result


async def command(result: ExecResult | Exception) -> Outcome:
    runtime: Any = Runtime(result)
    return await perform(runtime, {"exec": {"command": ["a", "b"]}}, target(), 3)


async def test_commands_count_by_their_exit_code_and_their_output_is_cut() -> None:
    assert await command(ExecResult(0, b"out", b"err")) == Outcome(True, "outerr")
    failed = await command(ExecResult(1, b"\xff" * 20_000, b""))
    assert (failed.success, len(failed.output)) == (False, 10 * 1024)
    late = await command(RuntimeFailure("late", "DEADLINE_EXCEEDED"))
    assert late == Outcome(False, "command timed out: 'a b' timed out after 3s")
    assert await command(RuntimeFailure("no such container", "NOT_FOUND")) == Outcome(
        False, "no such container"
    )


class Watching:
    """A probe manager on one container, and what was heard of it."""

    def __init__(self, runtime: Any, **probes: Any) -> None:
        self.probes = ProbeManager(runtime)
        self.heard: list[str] = []
        self.woken = 0
        container = {"name": "c", **probes}
        listener = Listener(self._wake, lambda _name, text: self.heard.append(text))
        self.probes.watch(target(container), listener, was_started=False, was_ready=False)

    def _wake(self) -> None:
        self.woken += 1

    @property
    def probe_results(self) -> Any:
        return self.probes.probe_results("id")


GOOD, BAD = ExecResult(0, b"", b""), ExecResult(1, b"ill", b"")
PROBE = {"exec": {"command": ["x"]}, "periodSeconds": 10, "initialDelaySeconds": 5, "failureThreshold": 3}


@pytest.mark.looptime
async def test_a_container_is_unhealthy_after_so_many_failures_and_not_before() -> None:
    seen = Watching(Runtime(BAD), livenessProbe=PROBE)
    await asyncio.sleep(24)
    assert (seen.probe_results.liveness, seen.woken, seen.heard) == (
        ProbeResult.UNKNOWN,
        0,
        ["Liveness probe failed: ill"] * 2,
    )
    await asyncio.sleep(2)
    assert (seen.probe_results.liveness, seen.woken) == (ProbeResult.FAILURE, 1)
    await seen.probes.close()


@pytest.mark.looptime
async def test_readiness_waits_for_the_startup_probe() -> None:
    runtime = Runtime(BAD, GOOD)
    seen = Watching(runtime, startupProbe=PROBE, readinessProbe=PROBE)
    await asyncio.sleep(6)
    assert (seen.probe_results.has_started, seen.probe_results.is_ready) == (False, False)
    await asyncio.sleep(10)
    assert (seen.probe_results.has_started, seen.probe_results.is_ready) == (True, False)
    await asyncio.sleep(6)
    assert seen.probe_results.is_ready
    await seen.probes.close()


@pytest.mark.looptime
async def test_a_container_that_is_stopped_keeps_its_readiness_probe_only() -> None:
    seen = Watching(Runtime(BAD), livenessProbe=PROBE, readinessProbe=PROBE)
    seen.probes.stop_liveness("id")
    await asyncio.sleep(60)
    assert set(seen.heard) == {"Readiness probe failed: ill"}
    seen.probes.forget("id")
    heard = len(seen.heard)
    await asyncio.sleep(60)
    assert len(seen.heard) == heard


@pytest.mark.looptime
async def test_a_probe_that_cannot_be_judged_is_a_failed_one_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def odd(*_: object) -> Outcome:
        raise OverflowError("port must be 0-65535")

    monkeypatch.setattr(manager, "perform", odd)
    seen = Watching(None, livenessProbe=PROBE)
    await asyncio.sleep(26)
    assert seen.probe_results.liveness is ProbeResult.FAILURE
    assert seen.heard[0] == "Liveness probe failed: OverflowError: port must be 0-65535"
    await seen.probes.close()
