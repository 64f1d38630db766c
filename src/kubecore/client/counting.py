"""Counts the requests of a client by what they are for, how they were answered, and how long that took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kubecore.client.transport import ConnectionFailed, Request, Response, StreamedResponse, Transport
from kubecore.errors import StatusError

if TYPE_CHECKING:
    import aiohttp

Count = Callable[[Request, int], None]
"""Told of each request and the status of its answer; 0 where none came."""
Timed = Callable[[Request, float], None]
"""Told of a request, and how many seconds it took or had to wait."""

_VERBS = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "PATCH", "DELETE": "DELETE"}
_NO_RESOURCE = "none"
_NAMESPACE, _NAME = "%7Bnamespace%7D", "%7Bname%7D"
_STATUS = ("finalize", "status")


class CountingTransport:
    """Sends requests to another transport and tells `count` of each, and `timed` of those that are answered
    as a whole.
    """

    def __init__(self, transport: Transport, count: Count, timed: Timed | None = None) -> None:
        self._transport = transport
        self._count = count
        self._timed = timed

    async def request(self, request: Request) -> Response:
        """Send and read the whole response, whatever its status."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            response = await self._transport.request(request)
        except ConnectionFailed:
            self._count(request, 0)
            raise
        finally:
            if self._timed is not None:
                self._timed(request, clock() - begun)
        self._count(request, response.status)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        """Send and return the response as soon as its headers have arrived."""
        is_answered = False
        try:
            async with self._transport.stream(request) as response:
                is_answered = True
                self._count(request, response.status)
                yield response
        except ConnectionFailed:
            if not is_answered:
                self._count(request, 0)
            raise

    async def websocket(self, request: Request, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Upgrade to a websocket. Raises StatusError when the server refuses."""
        try:
            opened = await self._transport.websocket(request, protocols)
        except StatusError as error:
            self._count(request, error.code)
            raise
        except ConnectionFailed:
            self._count(request, 0)
            raise
        self._count(request, 101)
        return opened

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()


def resource_and_verb(request: Request) -> tuple[str, str]:
    """What a request is for: the plural of a kind, or ``none``; and the API's verb (pure)."""
    parts = request.path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    resource = rest[0] if rest else _NO_RESOURCE
    if request.method != "GET":
        return resource, _VERBS.get(request.method, request.method)
    if any(name == "watch" and value in ("1", "true") for name, value in request.query):
        return resource, "WATCH"
    return resource, "LIST" if len(rest) == 1 else "GET"


def url_template(request: Request) -> str:
    """What requests for objects of a kind have in common: client-go's URLs, without names and values (pure).

    So there are only as many as the program has kinds of requests.
    """
    query = "&".join(f"{name}=value" for name in sorted({name for name, _ in request.query}))
    return _path_template(request.path) + (f"?{query}" if query else "")


def _path_template(path: str) -> str:
    parts = path.strip("/").split("/")
    start = {"api": 2, "apis": 3}.get(parts[0])
    if start is None:
        return path if len(parts) == 1 else "/%7Bprefix%7D"
    named = parts[start:]
    if len(named) >= 4:
        named[1] = _NAMESPACE
        named[3] = named[3] if named[3] in _STATUS else _NAME
    elif len(named) == 3:
        named[1] = _NAME if named[2] in _STATUS else _NAMESPACE
    elif len(named) == 2:
        named[1] = _NAME
    return "/" + "/".join([*parts[:start], *named[:5]])
