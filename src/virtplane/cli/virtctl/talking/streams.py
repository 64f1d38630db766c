"""Websockets of the subresources API, and copying bytes between them and local streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

import aiohttp
from aiohttp import WSMsgType

from kubecore.client import Client
from virtplane.api.streams import SUBPROTOCOL

_CHUNK = 65536


class StreamLost(Exception):
    """The stream ended without a closing handshake: the guest has ended, or another session took over."""

    def __init__(self) -> None:
        super().__init__("websocket: close 1006 (abnormal closure): unexpected EOF")


async def open_stream(
    client: Client, path: str, query: dict[str, str] | None = None
) -> aiohttp.ClientWebSocketResponse:
    """Open a byte stream through the API server. Raises StatusError if it is refused."""
    return await client.websocket(path, [SUBPROTOCOL], query=query)


async def received(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[bytes]:
    """The received bytes, until the other side closes. Raises StreamLost if it ends without a closing
    handshake.
    """
    while True:
        message = await socket.receive()
        if message.type in (WSMsgType.BINARY, WSMsgType.TEXT):
            yield message.data if isinstance(message.data, bytes) else message.data.encode()
        elif message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING):
            # The other side has closed, or this program has.
            return
        elif message.type in (WSMsgType.CLOSED, WSMsgType.ERROR):
            raise StreamLost


class Sink(Protocol):
    """The target of bytes: a StreamWriter or a similar object."""

    def write(self, data: bytes, /) -> None:
        """Write bytes."""

    async def drain(self) -> None:
        """Wait until more bytes can be written."""

    def close(self) -> None:
        """End the output."""


async def carry(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: Sink) -> None:
    """Copy bytes both ways until either side ends. Raises StreamLost."""

    async def upwards() -> None:
        while data := await reader.read(_CHUNK):
            await socket.send_bytes(data)
        await socket.close()

    task = asyncio.create_task(upwards(), name="stream-upwards")
    try:
        async for data in received(socket):
            writer.write(data)
            await writer.drain()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task
        writer.close()
        await socket.close()
