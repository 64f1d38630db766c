"""Connections with callbacks on disconnect, so that watches and tunnels end at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from kubecore.large_requests import LargeRequestPool, RequestShare

from ..registry.context import UserInfo

_TOO_LONG = "431 Request Header Fields Too Large"
_NOT_HTTP = "400 Bad Request"


class Connection(RequestHandler):
    """One client connection; caches the user of its client certificate."""

    __slots__ = (
        "certificate",
        "closers",
        "is_serving",
        "large_requests",
        "patience",
        "share",
        "tunnel",
        "waiting_since",
        "writable",
    )

    def __init__(
        self, manager: web.Server, large_requests: LargeRequestPool, patience: float, **options: Any
    ) -> None:
        super().__init__(manager, **options)
        self.patience = patience
        """Seconds that the body of a request may take to arrive."""
        self.large_requests = large_requests
        self.share = RequestShare(large_requests)
        """What the present request has taken of the capacity for big requests."""
        self.closers: set[Callable[[], None]] = set()
        self.certificate: tuple[UserInfo, str] | Literal[False] | None = None
        """User and issuer of the client's certificate. None: not looked at yet; False: there is none."""
        self.is_serving = False
        self.waiting_since: float | None = asyncio.get_running_loop().time()
        """Since when the head of a request is awaited; None while one is served or the connection idles."""
        self.tunnel: Callable[[bytes], None] | None = None
        """Once set, bytes from the client go there unread."""
        self.writable = asyncio.Event()
        """Cleared while the client reads too slowly."""
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        """Bytes for the HTTP parser, or for the tunnel."""
        if self.tunnel is not None:
            self.tunnel(data)
            return
        if self.waiting_since is None and not self.is_serving:
            self.waiting_since = asyncio.get_running_loop().time()
        super().data_received(data)

    def begin_request(self) -> None:
        """The headers of a request are complete."""
        self.is_serving, self.waiting_since = True, None

    def end_request(self) -> None:
        """The response is sent: release the request's share of the pool."""
        self.is_serving = False
        self.share.give_back()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed HTTP as Go's server does: briefly, without echoing it.

        Raises ConnectionError, which ends the connection, where part of a response was sent already.
        """
        if isinstance(exc, ConnectionError) and request.writer.output_size:
            raise exc  # the client has left, or what failed is logged
        if status < 500:
            too_long = isinstance(exc, LineTooLong) or "Too many headers" in (message or "")
            text = _TOO_LONG if too_long else _NOT_HTTP
            response = web.Response(status=int(text[:3]), text=text)
            response.force_close()
            return response
        return super().handle_error(request, status, exc, message)

    def pause_writing(self) -> None:
        """The client's buffers are full."""
        self.writable.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.writable.set()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Call the callbacks."""
        super().connection_lost(exc)
        self.writable.set()
        self.end_streams()

    def end_streams(self) -> None:
        """End watches and tunnels of this connection; other requests continue."""
        for closer in list(self.closers):
            closer()
        self.closers.clear()
