"""Logs for clients that read them over a websocket."""

from __future__ import annotations

import asyncio
import base64

import aiohttp
from aiohttp import web

from kubecore import errors

_CHUNK_BYTES = 64 * 1024
_BINARY, _BASE64 = "binary.k8s.io", "base64.binary.k8s.io"


def is_websocket(request: web.BaseRequest) -> bool:
    """Whether the request is a websocket handshake."""
    tokens = request.headers.get("Connection", "").lower()
    return "upgrade" in tokens and request.headers.get("Upgrade", "").lower() == "websocket"


async def send_as_messages(request: web.BaseRequest, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    """Send the body of `upstream` in messages until it ends or the client leaves. Raises StatusError (400).

    The first message is empty: it tells that the stream is open. Messages are binary, or text in base64 where
    the client chose that.
    """
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    known = [name for name in offered if name in ("", _BINARY, _BASE64)]
    if not known:
        raise errors.bad_request(f"requested protocol(s) are not supported: {offered}")
    socket = web.WebSocketResponse(protocols=[known[0]] if known[0] else [])
    await socket.prepare(request)
    sending = asyncio.create_task(_send(socket, upstream, known[0] == _BASE64), name="log-to-websocket")
    leaving = asyncio.create_task(_until_closed(socket), name="log-websocket-client")
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        leaving.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    await socket.close()
    return socket


async def _send(socket: web.WebSocketResponse, upstream: aiohttp.ClientResponse, as_text: bool) -> None:
    async def message(data: bytes) -> None:
        if as_text:
            await socket.send_str(base64.b64encode(data).decode())
        else:
            await socket.send_bytes(data)

    await message(b"")
    async for chunk in upstream.content.iter_chunked(_CHUNK_BYTES):
        await message(chunk)


async def _until_closed(socket: web.WebSocketResponse) -> None:
    """Read and discard the client's messages until it disconnects."""
    async for _ in socket:
        continue
