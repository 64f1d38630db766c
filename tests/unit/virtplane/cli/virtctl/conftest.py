"""virtctl in this process, and a small API server of its own for it to talk to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from virtplane.cli.virtctl import main as program

SUB = "/apis/subresources.kubevirt.io/v1/namespaces"
Stream = Callable[[web.WebSocketResponse], Awaitable[None]]


@dataclass
class FakeServer:
    """Answers by method and path, texts as they are; everything else is an empty 200.

    Websockets are served by `stream`.
    """

    url: str = ""
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    earlier: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    """What is answered first, once each."""
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    stream: Stream | None = None
    delays: set[str] = field(default_factory=set)
    """Paths whose answers never come."""
    warnings: dict[str, str] = field(default_factory=dict)
    """The header ``Warning`` of answers, by path."""
    hangs_up: bool = False
    """Whether streams end without a closing handshake."""

    def refuse(self, method: str, path: str, code: int, message: str) -> None:
        """Answer with a Status."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
        self.answers[method, path] = (code, status)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.requests.append((request.method, request.path_qs, json.loads(text) if text else None))
        self.headers.append(dict(request.headers))
        if request.path in self.delays:
            await asyncio.Event().wait()
        if request.headers.get("Upgrade") == "websocket" and self.stream and request.path not in self.paths:
            socket = web.WebSocketResponse(protocols=["plain.kubevirt.io", "v4.channel.k8s.io"])
            await socket.prepare(request)
            await self.stream(socket)
            if self.hangs_up and request.transport is not None:
                request.transport.close()
            await socket.close()
            return socket
        key = (request.method, request.path)
        earlier = self.earlier.get(key)
        code, body = earlier.pop(0) if earlier else self.answers.get(key, (200, {}))
        if isinstance(body, str):
            return web.Response(text=body, status=code)
        if isinstance(body, bytes):
            return web.Response(body=body, status=code, content_type="image/png")
        warning = self.warnings.get(request.path)
        return web.json_response(body, status=code, headers={"Warning": warning} if warning else None)

    @property
    def paths(self) -> set[str]:
        return {path for _, path in self.answers}

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()


@contextmanager
def running(server: FakeServer) -> Iterator[None]:
    """Run the server in a thread."""
    started, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(started, stop),))
    thread.start()
    assert started.wait(5)
    yield
    loop.call_soon_threadsafe(stop.set)
    thread.join(5)
    loop.close()


@pytest.fixture
def api() -> Iterator[FakeServer]:
    """A running server."""
    server = FakeServer()
    with running(server):
        yield server


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Virtctl = Callable[..., Result]


@pytest.fixture(autouse=True)
def _no_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have one."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")


@pytest.fixture
def virtctl(api: FakeServer, capsys: pytest.CaptureFixture[str]) -> Virtctl:
    """Runs virtctl against the server; in a thread, whose event loop is nobody else's."""

    def run(*arguments: str, arguments_last: bool = False) -> Result:
        server = ["--server", api.url]
        capsys.readouterr()
        with ThreadPoolExecutor(1) as pool:
            line = [*server, *arguments] if arguments_last else [*arguments, *server]
            code = pool.submit(program.main, line).result(20)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
