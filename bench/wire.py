"""A small HTTP client: one request after another on a connection, with as little work as possible.

The load generator shares the machine with what it measures, so it must cost less than that.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import cast


class Connection:
    """One TLS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer = reader, writer
        self._head = f"Host: bench\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"

    @classmethod
    async def open(cls, port: int, token: str, context: ssl.SSLContext) -> Connection:
        """Connect to the server on this machine."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 24)
        return cls(reader, writer, token)

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lowered = answer.lower()
        at = lowered.find(b"content-length: ")
        if at >= 0:
            content = await self._reader.readexactly(int(lowered[at + 16 : lowered.index(b"\r", at)]))
        else:
            content = await self._chunks()
        return int(answer[9:12]), content

    async def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            part = await self._reader.readexactly(size + 2)
            if size == 0:
                return b"".join(parts)
            parts.append(part[:-2])

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class Watcher(asyncio.Protocol):
    """One watch. Every event carries the moment of its change, so its age is known when it arrives."""

    MARK = b'"sent":"'

    def __init__(self, path: str, token: str, ages: list[float]) -> None:
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        self._ages = ages
        self._rest = b""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not self.started.done():
            self.started.set_result(None)
        now = time.monotonic()
        data = self._rest + data
        at = data.find(self.MARK)
        end = 0
        while at >= 0:
            start = at + len(self.MARK)
            end = data.find(b'"', start)
            if end < 0:
                break
            self._ages.append(now - float(data[start:end]))
            at = data.find(self.MARK, end)
        self._rest = data[max(end, len(data) - 64) :]
