"""Web servers on loopback; pages fetched with no proxy between, and sessions that leave nothing open."""

from __future__ import annotations

import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.error import HTTPError

import aiohttp
from aiohttp import web
from tests.support.waiting import until


class PageRefused(OSError):
    """A web server answered with an error."""


def fetch_page(url: str, seconds: float = 3) -> bytes:
    """The body behind a URL. Raises OSError, of which PageRefused is one.

    An HTTPError holds its connection open for as long as anyone holds the error; so it does not leave here.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=seconds) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        error.close()
        raise PageRefused(f"{url}: {error.code} {error.reason}") from None


@asynccontextmanager
async def serve_app(
    app: web.Application, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Serve `app` at a free port of `host`, which is yielded."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def web_session() -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose sockets are closed when it ends.

    aiohttp forgets a connection that is not kept alive (a websocket's, a refused upgrade's), and TLS says
    goodbye on it in the background: where that outlives the test, a later test pays for it.
    """
    made: list[socket.socket] = []

    def make_socket(address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made.append(socket.socket(family, kind, protocol))
        return made[-1]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=make_socket)) as session:
        yield session
    await until(lambda: all(each.fileno() < 0 for each in made))
