"""Upgraded connections: raw bytes in both directions until either side ends (websockets, SPDY)."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from kubecore import errors

from ..http.connection import Connection
from .target import Target, forwarded_headers

_READ_BYTES = 64 * 1024
_MAX_BUFFERED_BYTES = 1024 * 1024
_CONNECT_SECONDS = 30.0


class TunnelledResponse(web.StreamResponse):
    """Stands for an answer that the upstream server wrote itself."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing: the bytes are already on their way."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing, as above."""


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether the client asks to leave HTTP."""
    tokens = request.headers.get("Connection", "").lower()
    return "upgrade" in tokens and bool(request.headers.get("Upgrade"))


async def tunnel(request: web.BaseRequest, target: Target) -> web.StreamResponse:
    """Send the request to `target` and join both connections. Raises StatusError (503)."""
    connection = request.protocol
    if not isinstance(connection, Connection) or request.transport is None:
        raise errors.internal("the connection cannot be upgraded")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                target.host,
                target.port,
                ssl=target.tls,
                server_hostname=(target.server_name or target.host) if target.tls is not None else None,
            )
    except (OSError, TimeoutError) as error:
        raise errors.service_unavailable(f"error dialing backend: {error}") from error
    joined = _Joined(connection, request.transport, reader, writer)
    try:
        await joined.run(_request_head(request, target))
    finally:
        connection.tunnel = None
        connection.closers.discard(joined.client_gone)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        connection.force_close()
        request.transport.close()
    return TunnelledResponse(status=101)


def _request_head(request: web.BaseRequest, target: Target) -> bytes:
    headers = forwarded_headers(request.headers.items(), target.headers, upgrade=True)
    host = target.server_name or target.host
    lines = [f"{request.method} {target.path} HTTP/1.1", f"Host: {host}:{target.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Joined:
    """The two connections of one tunnel."""

    def __init__(
        self,
        connection: Connection,
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._reader = reader
        self._writer = writer
        self._gone = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None

    def client_gone(self) -> None:
        """The client's connection is lost."""
        self._gone.set()

    async def run(self, head: bytes) -> None:
        """Pass bytes on until either side ends."""
        self._connection.closers.add(self.client_gone)
        self._connection.tunnel = self._from_client
        self._writer.write(head)
        downstream = asyncio.create_task(self._to_client(), name="tunnel-to-client")
        gone = asyncio.create_task(self._gone.wait(), name="tunnel-client-gone")
        try:
            await asyncio.wait({downstream, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [task for task in (downstream, gone, self._draining) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _from_client(self, data: bytes) -> None:
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > _MAX_BUFFERED_BYTES and self._draining is None:
            self._transport.pause_reading()
            self._draining = asyncio.create_task(self._drain(), name="tunnel-drain")

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            self._gone.set()
        finally:
            self._draining = None
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _to_client(self) -> None:
        while True:
            try:
                data = await self._reader.read(_READ_BYTES)
            except (ConnectionError, OSError):
                return
            if not data or self._transport.is_closing():
                return
            self._transport.write(data)
            await self._connection.writable.wait()
