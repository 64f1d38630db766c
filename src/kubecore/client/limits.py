"""How many requests a client sends in a time: a token bucket in front of its transport."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kubecore.client.counting import Timed
from kubecore.client.transport import Request, Response, StreamedResponse, Transport
from kubecore.tokenbucket import TokenBucket

if TYPE_CHECKING:
    import aiohttp

_SHORTEST_SECONDS = 0.001
"""Clocks do not tell shorter times apart."""


class RequestLimit:
    """`qps` requests per second, of which `burst` may come at once after a pause. It can change at any time,
    for those who wait already too. Requests are sent in the order in which they came.
    """

    def __init__(self, qps: float, burst: int) -> None:
        """`qps` and `burst` are greater than 0."""
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._bucket = self._made(qps, burst)

    def set(self, qps: float, burst: int) -> None:
        """Limit requests to these numbers from now on."""
        self._bucket = self._made(qps, burst)
        self._changed.set()

    async def wait(self) -> None:
        """Wait until one more request may be sent."""
        async with self._turn:
            while not self._bucket.try_take():
                self._changed.clear()
                seconds = max(_SHORTEST_SECONDS, self._bucket.seconds_until_next())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), seconds)

    @staticmethod
    def _made(qps: float, burst: int) -> TokenBucket:
        return TokenBucket(qps, burst, asyncio.get_running_loop().time)


class LimitedTransport:
    """Sends requests to another transport, no more than `limit` says. Watches and websockets count as one.

    `waited` is told how long each had to wait.
    """

    def __init__(self, transport: Transport, limit: RequestLimit, waited: Timed | None = None) -> None:
        self._transport = transport
        self._limit = limit
        self._waited = waited

    async def _wait(self, request: Request) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        await self._limit.wait()
        if self._waited is not None:
            self._waited(request, clock() - begun)

    async def request(self, request: Request) -> Response:
        """Send and read the whole response, whatever its status."""
        await self._wait(request)
        return await self._transport.request(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        """Send and return the response as soon as its headers have arrived."""
        await self._wait(request)
        async with self._transport.stream(request) as response:
            yield response

    async def websocket(self, request: Request, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Upgrade to a websocket. Raises StatusError when the server refuses."""
        await self._wait(request)
        return await self._transport.websocket(request, protocols)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
