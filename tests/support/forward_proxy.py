"""A proxy that leads every request to one server, whatever host it is for, and knows what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from multidict import CIMultiDict

_HEAD_BYTES = 1 << 14


@dataclass
class Asked:
    """The first line and the headers of the first request on each connection."""

    lines: list[str] = field(default_factory=list)
    headers: list[CIMultiDict[str]] = field(default_factory=list)


@asynccontextmanager
async def proxying(port: int, asked: Asked, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a proxy on loopback that leads to loopback's `port`; with `tls` it is reached over TLS."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        asked.lines.append(first)
        pairs = [line.partition(": ") for line in rest if line]
        asked.headers.append(CIMultiDict((name, value) for name, _, value in pairs))
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            if first.startswith("CONNECT "):
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                back.write(head)
            await asyncio.gather(relay(reader, back), relay(there, writer))
        except ConnectionError:
            pass  # either end may go first
        finally:
            back.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, limit=_HEAD_BYTES)
    async with server:
        yield server.sockets[0].getsockname()[1]
