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
from virtplane.compute.handler import streams


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


@asynccontextmanager
async def _connected(path: Path, ending: asyncio.Event) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A websocket to the guest behind `path`."""

    async def carry(request: web.Request) -> web.StreamResponse:
        return await streams.carry(request, path.parent, path.name, ending)

    app = web.Application()
    app.router.add_get("/", carry)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    guest = await asyncio.start_unix_server(Guest().serve, path)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://127.0.0.1:{port}/", protocols=(SUBPROTOCOL,)) as socket,
        ):
            yield socket
    finally:
        guest.close()
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
