"""Exec, attach and port-forward: upgraded connections, handed on to the runtime's streaming server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from kindling.node.server.http import Connection, HttpProblem, Request

_BLOCK = 64 * 1024
_WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
"""kubectl's port-forward: SPDY frames in binary websocket messages."""
_FORWARDED = (
    "connection",
    "upgrade",
    "x-stream-protocol-version",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
)
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_MAX_CONTROL = 125
"""Bytes that a control frame may carry (RFC 6455, 5.5)."""


def is_tunnel(request: Request) -> bool:
    """Whether SPDY frames come inside a websocket."""
    return TUNNEL_PROTOCOL in request.headers.get("sec-websocket-protocol", "")


def wants_upgrade(request: Request) -> bool:
    """Whether the request leaves HTTP."""
    return "upgrade" in request.headers.get("connection", "").lower() and "upgrade" in request.headers


def offers_only_v5(request: Request) -> bool:
    """Whether a websocket client speaks nothing that the runtime does.

    Refusing it makes kubectl repeat the request over SPDY, which can close stdin, too.
    """
    offered = [item.strip() for item in request.headers.get("sec-websocket-protocol", "").split(",")]
    spoken = {"v4.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", "v4.base64.channel.k8s.io"}
    return any(offered) and not spoken & set(offered)


async def hand_on(request: Request, connection: Connection, url: str) -> None:
    """Repeat the upgrade towards `url` and pump bytes both ways until either side ends."""
    reader, writer = await _connect(url)
    try:
        headers = [f"{name}: {value}" for name, value in request.headers.items() if name in _FORWARDED]
        await _send_head(writer, request.method, url, headers)
        connection.has_answered = True
        await _pump_both(connection.reader, connection.writer, reader, writer)
    finally:
        writer.close()


async def tunnel(request: Request, connection: Connection, url: str) -> None:
    """Unwrap SPDY from websocket messages towards `url`, and wrap what comes back."""
    reader, writer = await _connect(url)
    try:
        headers = [
            "connection: Upgrade",
            "upgrade: SPDY/3.1",
            "x-stream-protocol-version: portforward.k8s.io",
        ]
        await _send_head(writer, "POST", url, headers)
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in answer.split(b"\r\n", 1)[0]:
            raise HttpProblem(500, "the container runtime refused to forward ports")
        key = request.headers.get("sec-websocket-key", "")
        digest = hashlib.sha1(f"{key}{_WEBSOCKET_GUID}".encode()).digest()
        await connection.start(
            101,
            {
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
                "Sec-WebSocket-Protocol": TUNNEL_PROTOCOL,
            },
        )
        await _first_of(_unwrap(connection, writer), _wrap(reader, connection))
    finally:
        writer.close()


async def _unwrap(connection: Connection, writer: asyncio.StreamWriter) -> None:
    async for message in read_messages(connection.reader, connection.writer):
        writer.write(message)
        await writer.drain()


async def _wrap(reader: asyncio.StreamReader, connection: Connection) -> None:
    while data := await reader.read(_BLOCK):
        connection.writer.write(frame(_BINARY, data))
        await connection.writer.drain()
    connection.writer.write(frame(_CLOSE, struct.pack(">H", 1000)))
    await connection.writer.drain()


def frame(opcode: int, payload: bytes) -> bytes:
    """An unmasked websocket frame, as servers send them."""
    size = len(payload)
    head = bytes([0x80 | opcode])
    if size < 126:
        return head + bytes([size]) + payload
    if size < 65536:
        return head + struct.pack(">BH", 126, size) + payload
    return head + struct.pack(">BQ", 127, size) + payload


async def read_messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """Payloads of data frames, in pieces, until the client closes or breaks the rules; pings are answered.

    A frame may claim any size up to 2^63 bytes: no more than a block of it is held.
    """
    while True:
        try:
            opcode, size, mask = await _read_head(reader)
            if opcode >= _CLOSE:
                if opcode == _CLOSE or size > _MAX_CONTROL:
                    return
                payload = unmask(await reader.readexactly(size), mask)
                if opcode == _PING:
                    writer.write(frame(_PONG, payload))
                    await writer.drain()
                continue
            while size:
                # Whole masks, so that the next piece begins with the mask's first byte.
                piece = await reader.readexactly(min(size, _BLOCK))
                size -= len(piece)
                yield unmask(piece, mask)
        except asyncio.IncompleteReadError:
            return


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Opcode, size and mask of the next frame. Raises IncompleteReadError."""
    first, second = await reader.readexactly(2)
    opcode, size = first & 0x0F, second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", await reader.readexactly(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", await reader.readexactly(8))
    return opcode, size, await reader.readexactly(4) if second & 0x80 else b"\0\0\0\0"


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Undo (or do) a websocket's masking."""
    if mask == b"\0\0\0\0" or not payload:
        return payload
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return number.to_bytes(len(payload), "big")


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    target = urlsplit(url)
    try:
        return await asyncio.open_connection(target.hostname, target.port)
    except OSError as error:
        raise HttpProblem(500, f"the container runtime's streaming server is gone: {error}") from error


async def _send_head(writer: asyncio.StreamWriter, method: str, url: str, headers: list[str]) -> None:
    target = urlsplit(url)
    path = target.path + (f"?{target.query}" if target.query else "")
    head = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {target.netloc}", *headers])
    writer.write(f"{head}\r\n\r\n".encode())
    await writer.drain()


async def _pump_both(
    client_reader: asyncio.StreamReader,
    client_writer: asyncio.StreamWriter,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    await _first_of(_pump(client_reader, writer), _pump(reader, client_writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BLOCK):
        writer.write(data)
        await writer.drain()


async def _first_of(*coroutines: object) -> None:
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, ConnectionError):
            raise result
