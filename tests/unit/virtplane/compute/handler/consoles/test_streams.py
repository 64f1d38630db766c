"""Consoles and displays between virt-api and QEMU's sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from virtplane.api.streams import MAX_MESSAGE_BYTES, SUBPROTOCOL
from virtplane.compute.handler.consoles import streams


class Guest:
    """A socket as QEMU's: what is sent to it comes back in brackets, and ``bye`` ends it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while data := await reader.read(100):
            if data == b"bye":
                break
            writer.write(b"<" + data + b">")
            await writer.drain()
        writer.close()


class StoppedGuest(Guest):
    """A socket as that of a QEMU that is stopped after it has read one byte."""

    def __init__(self) -> None:
        self.has_read = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        await reader.readexactly(1)
        self.has_read.set()


@pytest.fixture
async def stopped() -> AsyncIterator[StoppedGuest]:
    made = StoppedGuest()
    yield made
    made.writer.transport.abort()
    await asyncio.sleep(0)


@asynccontextmanager
async def _connected(
    path: Path, ending: asyncio.Event, guest: Guest | None = None, ended: asyncio.Event | None = None
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A websocket to the guest behind `path`; `ended` is set when nothing is carried any more."""

    async def carry(request: web.Request) -> web.StreamResponse:
        try:
            return await streams.carry(request, path.parent, path.name, ending)
        finally:
            if ended is not None:
                ended.set()

    app = web.Application()
    app.router.add_get("/", carry)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    server = await asyncio.start_unix_server((guest or Guest()).serve, path)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{port}/", protocols=(SUBPROTOCOL,)) as socket,
        ):
            yield socket
    finally:
        server.close()
        await runner.cleanup()


@pytest.mark.feature("ACC-14")
async def test_bytes_go_both_ways_and_other_messages_nowhere(tmp_path: Path) -> None:
    async with _connected(tmp_path / "serial", asyncio.Event()) as socket:
        assert socket.protocol == "plain.kubevirt.io"
        await socket.send_str("not for the guest")
        await socket.send_bytes(b"ls")
        assert await socket.receive_bytes(timeout=5) == b"<ls>"


async def test_a_stream_ends_without_a_closing_handshake_when_the_guest_is_gone(tmp_path: Path) -> None:
    async with _connected(tmp_path / "serial", asyncio.Event()) as socket:
        await socket.send_bytes(b"bye")
        # A closing handshake would be a message of type CLOSE.
        assert (await socket.receive(5)).type == WSMsgType.CLOSED


async def test_a_stream_ends_without_a_closing_handshake_when_somebody_takes_over(tmp_path: Path) -> None:
    ending = asyncio.Event()
    async with _connected(tmp_path / "serial", ending) as socket:
        await socket.send_bytes(b"ls")
        assert await socket.receive_bytes(timeout=5) == b"<ls>"
        ending.set()
        assert (await socket.receive(5)).type in (WSMsgType.CLOSED, WSMsgType.ERROR)


async def test_whoever_takes_over_does_not_wait_for_a_stopped_guest(
    tmp_path: Path, stopped: StoppedGuest
) -> None:
    ending, ended = asyncio.Event(), asyncio.Event()
    async with _connected(tmp_path / "serial", ending, stopped, ended) as socket:
        await socket.send_bytes(bytes(MAX_MESSAGE_BYTES // 2))
        await stopped.has_read.wait()
        ending.set()
        await ended.wait()


async def test_what_a_stopped_guest_has_not_read_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: StoppedGuest
) -> None:
    monkeypatch.setattr(streams, "_FLUSH_SECONDS", 0.01)
    async with await asyncio.start_unix_server(stopped.serve, tmp_path / "serial"):
        _, writer = await asyncio.open_unix_connection(tmp_path / "serial")
        writer.write(bytes(MAX_MESSAGE_BYTES))
        await stopped.has_read.wait()
        await streams._close(writer)


async def test_a_message_that_is_too_long_ends_the_stream_and_reaches_no_guest(tmp_path: Path) -> None:
    async with _connected(tmp_path / "serial", asyncio.Event()) as socket:
        with contextlib.suppress(ConnectionError):  # it may be hung up while this is sent
            await socket.send_bytes(bytes(MAX_MESSAGE_BYTES + 1))
        assert (await socket.receive(5)).type is not WSMsgType.BINARY


async def test_a_missing_socket_is_an_answer_before_the_upgrade(tmp_path: Path) -> None:
    async with _connected(tmp_path / "serial", asyncio.Event()) as first:
        (tmp_path / "serial").unlink()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(first._response.url)
    assert refused.value.status == 500
