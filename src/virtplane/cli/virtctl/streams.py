"""Websockets of the subresources API, and carrying bytes between them and local streams."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kubecore.client import Client
from kubecore.errors import StatusError

if TYPE_CHECKING:
    import aiohttp

SUBPROTOCOL = "plain.kubevirt.io"
_CHUNK = 65536
ABNORMAL_CLOSE = 1006
_KUBEVIRTS_WORDS = {
    404: "Virtual Machine not found.",
    500: "Websocket failed due to internal server error.",
}
"""What KubeVirt's clients say about refused websockets, whatever the answer's body says."""


async def open_stream(
    client: Client, path: str, query: dict[str, str] | None = None
) -> aiohttp.ClientWebSocketResponse:
    """A byte stream through the API server. Raises StatusError when it is refused."""
    try:
        return await client.websocket(path, [SUBPROTOCOL], query=query)
    except StatusError as error:
        message = _KUBEVIRTS_WORDS.get(error.code)
        if message is None:
            raise
        raise StatusError(error.code, error.reason, message, error.details) from error


async def carry(
    socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes both ways until either side ends."""

    async def upwards() -> None:
        while data := await reader.read(_CHUNK):
            await socket.send_bytes(data)
        await socket.close()

    task = asyncio.create_task(upwards(), name="stream-upwards")
    try:
        async for message in socket:
            data = message.data
            writer.write(data if isinstance(data, bytes) else str(data).encode())
            await writer.drain()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task
        writer.close()
        await socket.close()
