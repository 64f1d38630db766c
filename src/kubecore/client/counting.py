"""Counts the requests of a client by what they are for and how they were answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kubecore.client.transport import ConnectionFailed, Request, Response, StreamedResponse, Transport
from kubecore.errors import StatusError

if TYPE_CHECKING:
    import aiohttp

Count = Callable[[Request, int], None]
"""Told of each request and the status of its answer; 0 where none came."""

_VERBS = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "PATCH", "DELETE": "DELETE"}
_NO_RESOURCE = "none"


class CountingTransport:
    """Sends requests to another transport and tells `count` of each."""

    def __init__(self, transport: Transport, count: Count) -> None:
        self._transport = transport
        self._count = count

    async def request(self, request: Request) -> Response:
        """Send and read the whole response, whatever its status."""
        try:
            response = await self._transport.request(request)
        except ConnectionFailed:
            self._count(request, 0)
            raise
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
