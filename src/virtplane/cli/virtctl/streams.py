"""Websockets of the subresources API, and carrying bytes between them and local streams."""

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
    """The stream ended without a closing handshake: the guest is gone, or somebody else took over."""

    def __init__(self) -> None:
        super().__init__("websocket: close 1006 (abnormal closure): unexpected EOF")


async def open_stream(
    client: Client, path: str, query: dict[str, str] | None = None
) -> aiohttp.ClientWebSocketResponse:
    """A byte stream through the API server. Raises StatusError when it is refused."""
    return await client.websocket(path, [SUBPROTOCOL], query=query)


async def received(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[bytes]:
    """The bytes that arrive, until the other side takes its leave. Raises StreamLost where it does not."""
    while True:
        message = await socket.receive()
        if message.type in (WSMsgType.BINARY, WSMsgType.TEXT):
            yield message.data if isinstance(message.data, bytes) else message.data.encode()
        elif message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING):
            # The other side took its leave, or this program did.
            return
        elif message.type in (WSMsgType.CLOSED, WSMsgType.ERROR):
            raise StreamLost


class Sink(Protocol):
    """Where bytes go: a StreamWriter or something like it."""

    def write(self, data: bytes, /) -> None:
        """Take bytes."""

    async def drain(self) -> None:
        """Wait until more may come."""

    def close(self) -> None:
        """No more will come."""


async def carry(socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: Sink) -> None:
    """Carry bytes both ways until either side ends. Raises StreamLost."""

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
