"""Exec, attach and port-forward: upgraded connections, proxied to the runtime's streaming server.

SPDY, and the websockets that the runtime understands, are passed on as bytes: the runtime itself agrees to
the upgrade. Only kubectl's port-forward, SPDY inside a websocket, is unwrapped here.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast
from urllib.parse import urlsplit

from aiohttp import WSMsgType
from aiohttp.http_websocket import WebSocketReader
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_ws import WebSocketResponse

from kindling.node.server.http import HttpProblem
from kubecore.directions import until_one_ends

_BLOCK = 64 * 1024
TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
"""kubectl's port-forward: SPDY frames in binary websocket messages."""
_FORWARDED = (
    "Connection",
    "Upgrade",
    "X-Stream-Protocol-Version",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Protocol",
)
_MAX_MESSAGE_BYTES = 1024 * 1024
"""A message is held until it is whole; clients write a few dozen KiB at a time."""
_CLOSE_SECONDS = 5.0
"""How long a client may take to agree that a websocket is closed."""


class _ProxiedResponse(StreamResponse):
    """A stand-in for a response that the runtime's streaming server has already sent."""

    async def prepare(self, request: BaseRequest) -> None:
        """Do nothing: the bytes are already on their way."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing, as above."""


class _RawBytes:
    """Receives the client's bytes from aiohttp once the connection has left HTTP."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Queue the bytes. aiohttp must keep delivering: this is never the end of the data."""
        self._reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        """The connection is lost."""
        self._reader.feed_eof()


def is_tunnel(request: BaseRequest) -> bool:
    """Whether the client sends SPDY frames inside a websocket."""
    return TUNNEL_PROTOCOL in _header(request, "Sec-WebSocket-Protocol")


def wants_upgrade(request: BaseRequest) -> bool:
    """Whether the request leaves HTTP."""
    return "upgrade" in _header(request, "Connection").lower() and "Upgrade" in request.headers


def offers_only_v5(request: BaseRequest) -> bool:
    """Whether a websocket client offers only protocols that the runtime does not support.

    Refusing it makes kubectl repeat the request over SPDY, which can close stdin, too.
    """
    offered = [item.strip() for item in _header(request, "Sec-WebSocket-Protocol").split(",")]
    spoken = {"v4.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", "v4.base64.channel.k8s.io"}
    return any(offered) and not spoken & set(offered)


async def proxy_stream(request: BaseRequest, url: str) -> StreamResponse:
    """Open the same upgrade towards `url` and copy bytes both ways until either side ends."""
    reader, writer = await _connect(url)
    try:
        headers = {name: value for name in _FORWARDED if (value := _header(request, name))}
        await _send_head(writer, request.method, url, headers)
        await until_one_ends(_pump(_raw_bytes(request), writer), _answer(reader, request))
    finally:
        writer.close()
    return _ProxiedResponse(status=101)


async def tunnel(request: BaseRequest, url: str) -> StreamResponse:
    """Unwrap SPDY from websocket messages towards `url`, and wrap what comes back."""
    reader, writer = await _connect(url)
    try:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "SPDY/3.1",
            "X-Stream-Protocol-Version": "portforward.k8s.io",
        }
        await _send_head(writer, "POST", url, headers)
        await _switched(reader)
        websocket = WebSocketResponse(
            protocols=(TUNNEL_PROTOCOL,),
            timeout=_CLOSE_SECONDS,
            compress=False,
            max_msg_size=_MAX_MESSAGE_BYTES,
        )
        await websocket.prepare(request)
        await until_one_ends(_unwrap(websocket, writer), _wrap(reader, websocket))
        await websocket.close()
    finally:
        writer.close()
    return websocket


def _header(request: BaseRequest, name: str) -> str:
    """All values of a header."""
    return ", ".join(request.headers.getall(name, ()))


def _raw_bytes(request: BaseRequest) -> asyncio.StreamReader:
    """The bytes that the client sends from now on. Its socket is not read while these bytes are not read."""
    if request.transport is None:
        raise ConnectionResetError("the client is gone")
    reader = asyncio.StreamReader(_BLOCK)
    reader.set_transport(request.transport)
    request.protocol.set_parser(cast("WebSocketReader", _RawBytes(reader)))
    return reader


async def _answer(reader: asyncio.StreamReader, request: BaseRequest) -> None:
    while data := await reader.read(_BLOCK):
        await request.writer.write(data)


async def _unwrap(websocket: WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in websocket:
        if message.type is not WSMsgType.BINARY:
            return
        writer.write(message.data)
        await writer.drain()


async def _wrap(reader: asyncio.StreamReader, websocket: WebSocketResponse) -> None:
    while data := await reader.read(_BLOCK):
        await websocket.send_bytes(data)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BLOCK):
        writer.write(data)
        await writer.drain()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    target = urlsplit(url)
    try:
        return await asyncio.open_connection(target.hostname, target.port)
    except OSError as error:
        raise HttpProblem(500, f"the container runtime's streaming server is gone: {error}") from error


async def _send_head(writer: asyncio.StreamWriter, method: str, url: str, headers: dict[str, str]) -> None:
    target = urlsplit(url)
    path = target.path + (f"?{target.query}" if target.query else "")
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()


async def _switched(reader: asyncio.StreamReader) -> None:
    """Wait until the runtime has left HTTP. Raises HttpProblem."""
    answer = b""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        answer = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in answer.split(b"\r\n", 1)[0]:
        raise HttpProblem(500, "the container runtime refused to forward ports")
