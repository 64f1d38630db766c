"""Connections which tell when they are gone, so that watches and tunnels can end at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from ..registry.context import UserInfo


class Connection(RequestHandler):
    """One client connection; remembers who its certificate belongs to."""

    __slots__ = ("certificate", "closers")

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self.closers: set[Callable[[], None]] = set()
        self.certificate: tuple[UserInfo, str] | Literal[False] | None = None
        """User and issuer of the client's certificate. None: not looked at yet; False: there is none."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell everybody who asked."""
        super().connection_lost(exc)
        for closer in list(self.closers):
            closer()
        self.closers.clear()


class HttpServer(web.Server):
    """aiohttp's server with our connections."""

    def __init__(self, handler: Any, **options: Any) -> None:
        super().__init__(handler, **options)
        self._options = {key: value for key, value in options.items() if key != "handler_cancellation"}

    def __call__(self) -> RequestHandler:
        return Connection(self, loop=self._loop, **self._options)
