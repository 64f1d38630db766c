"""Which protocol serves a client: HTTP/1.1, or HTTP/2 where TLS has negotiated it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from kubecore.large_requests import LargeRequestPool

from .connection import Connection
from .tls import HTTP2

if TYPE_CHECKING:
    from .http2 import Http2Connection

_HEAD_SECONDS = 32.0
"""How long the head of a request may take to arrive, as Kubernetes' server gives it."""


class _Negotiated(asyncio.Protocol):
    """Gives way to the protocol that TLS has negotiated."""

    def __init__(self, http1: Callable[[], asyncio.Protocol], http2: Callable[[], asyncio.Protocol]) -> None:
        self._http1 = http1
        self._http2 = http2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        secured = transport.get_extra_info("ssl_object")
        is_http2 = secured is not None and secured.selected_alpn_protocol() == HTTP2
        chosen = self._http2() if is_http2 else self._http1()
        transport.set_protocol(chosen)
        chosen.connection_made(transport)


class HttpServer(web.Server):
    """aiohttp's server, with `Connection` as its protocol."""

    def __init__(
        self, handler: Any, large_requests: LargeRequestPool, patience: float, **options: Any
    ) -> None:
        super().__init__(handler, **options)
        self._patience = patience
        self._large_requests = large_requests
        self._options = {key: value for key, value in options.items() if key != "handler_cancellation"}
        self._idle_seconds: float = options["keepalive_timeout"]
        self._multiplexed: weakref.WeakSet[Http2Connection] = weakref.WeakSet()

    def __call__(self) -> Connection:
        return Connection(self, self._large_requests, self._patience, loop=self._loop, **self._options)

    def protocol(self) -> asyncio.Protocol:
        """Serve a new client with the HTTP version negotiated by ALPN."""
        return _Negotiated(self, self._multiplex)

    def _multiplex(self) -> Http2Connection:
        from .http2 import Http2Connection  # noqa: PLC0415 (for the first client that asks for it)

        made = Http2Connection(self, self._idle_seconds)
        self._multiplexed.add(made)
        return made

    async def drop_slow_heads(self) -> None:
        """Run until cancelled: close connections whose clients send request headers too slowly."""
        loop = asyncio.get_running_loop()
        seconds = min(_HEAD_SECONDS, self._patience)
        while True:
            await asyncio.sleep(seconds / 8)
            due = loop.time() - seconds
            for connection in list(self.connections):
                if not isinstance(connection, Connection) or connection.transport is None:
                    continue
                if connection.waiting_since is not None and connection.waiting_since < due:
                    connection.transport.abort()

    def end_streams(self) -> None:
        """End all watches and tunnels, which would otherwise outlast the shutdown timeout.

        A connection of HTTP/2 then ends with its last request.
        """
        for multiplexed in list(self._multiplexed):
            multiplexed.close()
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.end_streams()
