"""The node's HTTPS server, on aiohttp's low-level one: client certificates, one request per connection."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from kindling.listener import Listener

_log = logging.getLogger(__name__)

_MAX_LINE_BYTES = 64 * 1024
"""The command of an exec request is in its first line. Other lines have aiohttp's limit of 8 KiB."""
_HEAD_SECONDS = 30.0
"""How long the head of a request may take to arrive."""
_HANDSHAKE_SECONDS = 10.0
_MAX_CONNECTIONS = 1000
"""For each client: the API server's streams to a node full of pods, and a bound for everybody else."""
_STOP_SECONDS = 0.2
"""How long a stop waits for requests before it cancels them."""


class HttpProblem(Exception):
    """An answer with an error status and a plain text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Peer:
    """Who a client's certificate names: the user, and the groups."""

    name: str
    organisations: frozenset[str]


Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]
Check = Callable[[Peer, BaseRequest], Awaitable[None]]
"""Raises HttpProblem where the client may not."""


def flag(request: BaseRequest, *names: str) -> bool:
    """Whether any of these query parameters is true or 1."""
    return any(request.query.get(name) in ("true", "1") for name in names)


class Connection(RequestHandler):
    """A client's connection. It is closed when the head of its request takes too long."""

    __slots__ = ("_address", "_head_timer", "_released")

    def __init__(self, manager: Server, released: Callable[[str], None], **options: Any) -> None:
        super().__init__(manager, **options)
        self._released = released
        self._address = ""
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        super().connection_made(transport)
        # The transports of uvloop have all its methods and are no asyncio.Transport.
        connected = cast("asyncio.Transport", transport)
        self._address = connected.get_extra_info("peername")[0]
        self._head_timer = asyncio.get_running_loop().call_later(_HEAD_SECONDS, connected.abort)

    def head_arrived(self) -> None:
        """The request head is complete: cancel the timeout. The response may take as long as its stream
        lasts.
        """
        if self._head_timer is not None:
            self._head_timer.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Make room for another connection of this client."""
        super().connection_lost(exc)
        self.head_arrived()
        self._released(self._address)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer malformed requests without repeating their content."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        is_too_large = isinstance(exc, LineTooLong) or "Too many headers" in (message or "")
        return _plain(400, "request header too large" if is_too_large else "malformed request")


class _Connections(Server):
    """aiohttp's server with our connections."""

    def __init__(self, handler: Handler, released: Callable[[str], None]) -> None:
        # Cancel a handler when its client disconnects: otherwise it would follow a log for ever.
        super().__init__(handler, handler_cancellation=True)
        self._released = released

    def __call__(self) -> RequestHandler:
        return Connection(
            self,
            self._released,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_LINE_BYTES,
            lingering_time=0,
        )


@asynccontextmanager
async def serving(
    handler: Handler, host: str, port: int, context: ssl.SSLContext, check: Check
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port.

    `context` requires client certificates; `check` authorizes each request. Raises OSError.
    """

    async def answer(request: BaseRequest) -> StreamResponse:
        assert isinstance(request.protocol, Connection)
        request.protocol.head_arrived()
        try:
            await check(_peer(request), request)
            response = await handler(request)
        except HttpProblem as problem:
            response = _plain(problem.code, str(problem))
        response.force_close()
        return response

    def released(address: str) -> None:
        listener.release(address)

    server = _Connections(answer, released)
    listener = Listener(server, [host], port, max_per_client=_MAX_CONNECTIONS)
    listener.start(context, _HANDSHAKE_SECONDS)
    try:
        yield listener.port
    finally:
        listener.close()
        server.pre_shutdown()
        await server.shutdown(_STOP_SECONDS)


def _plain(code: int, text: str) -> Response:
    response = Response(status=code, body=text.encode(), content_type="text/plain")
    response.force_close()
    return response


def _peer(request: BaseRequest) -> Peer:
    certificate = request.get_extra_info("peercert") or {}
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in pairs if key == "commonName"), "")
    return Peer(name, frozenset(value for key, value in pairs if key == "organizationName"))
