"""Upgraded connections: once the upstream server has agreed, raw bytes in both directions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h11
from aiohttp import web

from kubecore import errors

from ..http.connection import Connection
from .target import Target, forwarded_headers

_READ_BYTES = 64 * 1024
_MAX_BUFFERED_BYTES = 1024 * 1024
_MAX_EARLY_BYTES = 64 * 1024
"""What a client may send before the upstream server has agreed."""
_MAX_REFUSAL_BYTES = 1024 * 1024
_CONNECT_SECONDS = 30.0
_ANSWER_SECONDS = 60.0
_PROTOCOLS = frozenset({"websocket", "spdy/3.1"})
"""What the streams of Kubernetes speak. Protocols such as h2c would carry requests that nobody authorized."""


class TunnelledResponse(web.StreamResponse):
    """Stands for a response that the upstream server wrote itself."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing: the bytes are already on their way."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing, as above."""


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether this is an upgrade request (websocket or SPDY)."""
    tokens = request.headers.get("Connection", "").lower()
    return "upgrade" in tokens and request.headers.get("Upgrade", "").lower() in _PROTOCOLS


async def tunnel(request: web.BaseRequest, target: Target) -> web.StreamResponse:
    """Send the request to `target` and join both connections when it switches protocols.

    Until then nothing of the client but this request reaches the server: on a connection that stays HTTP, the
    client would write further requests with the proxy's credentials. Raises StatusError (400, 503).
    """
    connection = request.protocol
    if not isinstance(connection, Connection) or request.transport is None:
        raise errors.internal("the connection cannot be upgraded")
    if request.body_exists:
        raise errors.bad_request("a request to upgrade the connection has no body")
    asking = _request_to(target, request)
    joined = _Joined(connection, request.transport)
    try:
        return await _through(target, joined, asking)
    finally:
        joined.end()


async def _through(target: Target, joined: _Joined, asking: h11.Request) -> web.StreamResponse:
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
    try:
        response = await _upgrade_response(reader, writer, asking)
        if isinstance(response, web.Response):
            return response
        await joined.run(response, reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return TunnelledResponse(status=101)


async def _upgrade_response(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asking: h11.Request
) -> bytes | web.Response:
    """The upstream's 101 response with the bytes that followed it, or its refusal for the client.

    Raises StatusError (503).
    """
    upstream = h11.Connection(h11.CLIENT, max_incomplete_event_size=_READ_BYTES)
    writer.write((upstream.send(asking) or b"") + (upstream.send(h11.EndOfMessage()) or b""))
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            answer = await _next_event(upstream, reader)
            if answer.status_code >= 400:
                return await _refusal(upstream, reader, answer)
    except (OSError, h11.RemoteProtocolError) as error:
        text = str(error) or type(error).__name__
        raise errors.service_unavailable(f"error reading from backend: {text}") from error
    if answer.status_code != 101:
        raise errors.service_unavailable(f"invalid upgrade response: status code {answer.status_code}")
    head = [b"HTTP/1.1 101 " + answer.reason]
    head += [name + b": " + value for name, value in answer.headers.raw_items()]
    return b"\r\n".join(head) + b"\r\n\r\n" + upstream.trailing_data[0]


async def _next_event(upstream: h11.Connection, reader: asyncio.StreamReader) -> Any:
    """The head of the response first, then its body and its end."""
    while (event := upstream.next_event()) is h11.NEED_DATA:
        upstream.receive_data(await reader.read(_READ_BYTES))
    return event


async def _refusal(
    upstream: h11.Connection, reader: asyncio.StreamReader, answer: h11.Response
) -> web.Response:
    """The response of a server that does not switch."""
    body = bytearray()
    while len(body) < _MAX_REFUSAL_BYTES:
        event = await _next_event(upstream, reader)
        if not isinstance(event, h11.Data):
            break
        body += event.data
    kind = dict(answer.headers).get(b"content-type", b"text/plain").decode("latin-1")
    response = web.Response(
        status=answer.status_code, body=bytes(body[:_MAX_REFUSAL_BYTES]), headers={"Content-Type": kind}
    )
    response.force_close()
    return response


def _request_to(target: Target, request: web.BaseRequest) -> h11.Request:
    """The request as the upstream server is sent it. Raises StatusError (400)."""
    headers = [("Host", f"{target.server_name or target.host}:{target.port}")]
    headers += [("Connection", "Upgrade"), ("Upgrade", request.headers["Upgrade"])]
    if request.method == "POST":
        headers.append(("Content-Length", "0"))
    headers += forwarded_headers(request.headers.items(), target.headers).items()
    try:
        return h11.Request(
            method=request.method,
            target=_encoded(target.path),
            headers=[(_encoded(name), _encoded(value)) for name, value in headers],
        )
    except h11.LocalProtocolError as error:
        raise errors.bad_request(f"the request cannot be passed on: {error}") from error


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class _Joined:
    """The client's connection, and once the upstream server has agreed, that one."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._early = bytearray()
        self._writer: asyncio.StreamWriter | None = None
        self._gone = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        connection.closers.add(self.client_gone)
        connection.tunnel = self._from_client

    def client_gone(self) -> None:
        """The client's connection is lost."""
        self._gone.set()

    def end(self) -> None:
        """Release the client's connection. It ends with the response, or at once if it was joined."""
        self._connection.tunnel = None
        self._connection.closers.discard(self.client_gone)
        self._connection.close()
        if self._writer is not None:
            self._connection.force_close()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    async def run(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the upstream's 101 response, then bytes until either side ends."""
        self._transport.write(head)
        self._writer = writer
        writer.write(bytes(self._early))
        self._transport.resume_reading()
        downstream = asyncio.create_task(self._to_client(reader), name="tunnel-to-client")
        gone = asyncio.create_task(self._gone.wait(), name="tunnel-client-gone")
        try:
            await asyncio.wait({downstream, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [task for task in (downstream, gone, self._draining) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _from_client(self, data: bytes) -> None:
        if self._writer is None:
            self._early += data
            if len(self._early) > _MAX_EARLY_BYTES:
                self._transport.pause_reading()
            return
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > _MAX_BUFFERED_BYTES and self._draining is None:
            self._transport.pause_reading()
            self._draining = asyncio.create_task(self._drain(self._writer), name="tunnel-drain")

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        try:
            await writer.drain()
        except ConnectionError:
            self._gone.set()
        finally:
            self._draining = None
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def _to_client(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                data = await reader.read(_READ_BYTES)
            except (ConnectionError, OSError):
                return
            if not data or self._transport.is_closing():
                return
            self._transport.write(data)
            await self._connection.writable.wait()
