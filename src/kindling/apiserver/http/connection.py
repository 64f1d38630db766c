"""Connections which tell when they are gone, so that watches and tunnels can end at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from ..registry.context import UserInfo
from ..registry.heavy import HeavyWork, Share


class Connection(RequestHandler):
    """One client connection; remembers who its certificate belongs to."""

    __slots__ = ("certificate", "closers", "heavy", "share", "tunnel", "writable")

    def __init__(self, manager: web.Server, heavy: HeavyWork, **options: Any) -> None:
        super().__init__(manager, **options)
        self.heavy = heavy
        self.share = Share(heavy)
        """What the present request has taken of the capacity for big requests."""
        self.closers: set[Callable[[], None]] = set()
        self.certificate: tuple[UserInfo, str] | Literal[False] | None = None
        """User and issuer of the client's certificate. None: not looked at yet; False: there is none."""
        self.tunnel: Callable[[bytes], None] | None = None
        """Once set, bytes from the client go there unread."""
        self.writable = asyncio.Event()
        """Cleared while the client reads too slowly."""
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        """Bytes for the HTTP parser, or for the tunnel."""
        if self.tunnel is not None:
            self.tunnel(data)
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        """The client's buffers are full."""
        self.writable.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self.writable.set()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell everybody who asked."""
        super().connection_lost(exc)
        self.writable.set()
        self.end_streams()

    def end_streams(self) -> None:
        """Let watches and tunnels of this connection end; other requests go on."""
        for closer in list(self.closers):
            closer()
        self.closers.clear()


class HttpServer(web.Server):
    """aiohttp's server with our connections."""

    def __init__(self, handler: Any, heavy: HeavyWork, **options: Any) -> None:
        super().__init__(handler, **options)
        self._heavy = heavy
        self._options = {key: value for key, value in options.items() if key != "handler_cancellation"}

    def __call__(self) -> RequestHandler:
        return Connection(self, self._heavy, loop=self._loop, **self._options)

    def end_streams(self) -> None:
        """Let all watches and tunnels end, which would otherwise outlast any patience at a stop."""
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.end_streams()
