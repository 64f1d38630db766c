"""The node's HTTPS server: its bounds, and the streams that leave HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from tests.unit.kindling.node.conftest import Pki

from kindling.node.server import http, streams

SPDY = "POST /exec/a/b/c HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
WEBSOCKET = "GET /exec/a/b/c HTTP/1.1\r\nHost: n\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
AGREED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ok(_: BaseRequest) -> StreamResponse:
    return Response(body=b"ok")


async def ask(pki: Pki, port: int, head: bytes) -> bytes:
    reader, writer = await pki.connect(port)
    try:
        writer.write(head)
        return await reader.read()
    finally:
        writer.close()


class StreamingServer:
    """The container runtime's end: remembers the head of the request, and echoes what follows."""

    def __init__(self, answer: bytes = AGREED) -> None:
        self.answer = answer
        self.head = b""
        self.ended = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token?a=b"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        self.ended.set()


@asynccontextmanager
async def streaming(
    pki: Pki, runtime: StreamingServer, how: Callable[[BaseRequest, str], Awaitable[StreamResponse]]
) -> AsyncIterator[int]:
    async with runtime.running() as url, pki.serving(lambda request: how(request, url)) as port:
        yield port


@asynccontextmanager
async def port_forward(pki: Pki, runtime: StreamingServer) -> AsyncIterator[ClientWebSocketResponse]:
    """What kubectl opens: a websocket that carries SPDY."""
    async with (
        streaming(pki, runtime, streams.tunnel) as port,
        ClientSession() as session,
        session.ws_connect(
            f"wss://127.0.0.1:{port}/portForward/a/b",
            ssl=pki.client(),
            server_hostname="node01",
            protocols=[streams.TUNNEL_PROTOCOL],
        ) as websocket,
    ):
        yield websocket


@pytest.mark.parametrize("request_line", [SPDY, f"{SPDY}Content-Length: 0\r\n", WEBSOCKET])
async def test_streams_are_passed_on_as_bytes_to_the_runtime_and_back(pki: Pki, request_line: str) -> None:
    runtime = StreamingServer()
    async with streaming(pki, runtime, streams.proxy_stream) as port:
        reader, writer = await pki.connect(port)
        extra = (
            "X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3\r\nCookie: x\r\n"
        )
        writer.write((request_line + extra + "\r\n").encode())
        assert await reader.readuntil(b"\r\n\r\n") == AGREED
        # More than all buffers on the way hold.
        sent = os.urandom(1024) * 3000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()
        await runtime.ended.wait()
    lines = runtime.head.decode().split("\r\n")
    assert lines[0] == f"{request_line.split(maxsplit=1)[0]} /exec/token?a=b HTTP/1.1"
    assert "X-Stream-Protocol-Version: v4.channel.k8s.io, v3" in lines
    assert not any(line.startswith("Cookie") for line in lines)


async def test_a_client_learns_that_the_runtime_ended_a_stream(pki: Pki) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(AGREED + b"bye")
        writer.close()

    async with await asyncio.start_server(leave, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token"
        async with pki.serving(lambda request: streams.proxy_stream(request, url)) as port:
            assert await ask(pki, port, f"{SPDY}\r\n".encode()) == AGREED + b"bye"


async def test_a_streaming_server_that_is_gone_is_an_error(pki: Pki) -> None:
    async with pki.serving(lambda request: streams.proxy_stream(request, "http://127.0.0.1:1/x")) as port:
        answer = await ask(pki, port, f"{SPDY}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"the container runtime's streaming server is gone" in answer


async def test_port_forwards_inside_websockets_are_unwrapped(pki: Pki) -> None:
    runtime = StreamingServer()
    async with port_forward(pki, runtime) as websocket:
        assert websocket.protocol == streams.TUNNEL_PROTOCOL
        sent = os.urandom(200_001)
        await websocket.send_bytes(sent)
        received = b""
        while len(received) < len(sent):
            received += await websocket.receive_bytes()
        assert received == sent
        await websocket.close()
        await runtime.ended.wait()
    lines = runtime.head.decode().split("\r\n")
    assert lines[0] == "POST /exec/token?a=b HTTP/1.1"
    assert {"Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: portforward.k8s.io"} < set(lines)


async def test_a_message_of_any_size_does_not_fill_the_nodes_memory(pki: Pki) -> None:
    runtime = StreamingServer()
    async with port_forward(pki, runtime) as websocket:
        await websocket.send_bytes(bytes(2 * 1024 * 1024))
        message = await websocket.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1009)


async def test_a_runtime_that_refuses_to_forward_ports_is_an_error(pki: Pki) -> None:
    runtime = StreamingServer(b"HTTP/1.1 404 Not Found\r\n\r\n")
    async with streaming(pki, runtime, streams.tunnel) as port:
        answer = await ask(pki, port, f"{WEBSOCKET}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 500")
    assert answer.endswith(b"the container runtime refused to forward ports")


async def test_a_handler_ends_when_its_client_hangs_up(pki: Pki) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def follow(request: BaseRequest) -> StreamResponse:
        response = StreamResponse()
        await response.prepare(request)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    async with pki.serving(follow) as port:
        _, writer = await pki.connect(port)
        writer.write(b"GET /containerLogs/a/b/c?follow=true HTTP/1.1\r\nHost: n\r\n\r\n")
        await begun.wait()
        writer.close()
        await asyncio.wait_for(ended.wait(), 5)


async def test_each_connection_serves_one_request(pki: Pki) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n"
    async with pki.serving(ok) as port:
        answer = await ask(pki, port, one + one)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close\r\n" in answer


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"GET /x?" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"request header too large"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n", b"request header too large"),
        (b"\x00\r\n\r\n", b"malformed request"),
        (b"GET http://[::1/pods HTTP/1.1\r\n\r\n", b"malformed request"),
    ],
)
async def test_what_is_not_a_request_is_refused_without_repeating_it(
    pki: Pki, head: bytes, text: bytes
) -> None:
    async with pki.serving(ok) as port:
        answer = await ask(pki, port, head)
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert answer.endswith(b"\r\n\r\n" + text)


async def test_a_command_may_be_long(pki: Pki) -> None:
    async with pki.serving(ok) as port:
        head = b"GET /exec/a/b/c?command=" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: n\r\n\r\n"
        assert (await ask(pki, port, head)).startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_finish_its_request_is_sent_away(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_HEAD_SECONDS", 0.05)
    async with pki.serving(ok) as port:
        assert await ask(pki, port, b"GET /healthz HTTP/1.1\r\n") == b""


async def test_one_client_has_a_bounded_number_of_connections(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "_MAX_CONNECTIONS", 2)
    async with pki.serving(ok) as port:
        writers = [(await pki.connect(port))[1] for _ in range(2)]
        for _ in range(3):
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await pki.connect(port)
        assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
            "127.0.0.1 has 2 connections open: more are refused until it closes some"
        ]
        writers.pop().close()
        async with asyncio.timeout(5):
            writers.append(await first_accepted(pki, port))
        for writer in writers:
            writer.close()


async def first_accepted(pki: Pki, port: int) -> asyncio.StreamWriter:
    while True:
        try:
            return (await pki.connect(port))[1]
        except OSError:  # the server has not heard yet that another one is closed
            continue


async def test_failed_handshakes_do_not_count_as_connections(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_MAX_CONNECTIONS", 1)
    async with pki.serving(ok) as port:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"this is not TLS\r\n\r\n")
            await reader.read()
            writer.close()
        answer = await ask(pki, port, b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_nothing_is_accepted_for_a_moment_when_descriptors_run_out(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with pki.serving(ok) as port:
        with socket.socket() as client:
            client.setblocking(False)
            with no_descriptor_left():
                client.connect_ex(("127.0.0.1", port))
                for _ in range(200):
                    await asyncio.sleep(0.001)
    assert [record.getMessage() for record in caplog.records if "Too many open files" in record.getMessage()]
    assert len(caplog.records) == 1
