"""What can go wrong between a process and the API server, decided by chance of the seed."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import orjson

from kubecore import errors
from kubecore.client import ConnectionFailed, Request, Response, StreamedResponse
from kubecore.errors import StatusError
from kubecore.testing.transport import MemoryTransport


class Server(Protocol):
    """The server in memory, or what one user may do there."""

    def handle(self, request: Request) -> Response:
        """The answer."""

    def watch(self, request: Request) -> AsyncIterator[bytes]:
        """What is seen of a watch."""


Note = Callable[[str], None]
"""Takes a line of the trace."""


@dataclass(slots=True)
class Chances:
    """How likely each fault is, for one request or one event of a watch; all zero in calm times."""

    refused: float = 0.0
    lost_before: float = 0.0
    """The connection breaks before the request took effect."""
    lost_after: float = 0.0
    """The connection breaks after the request took effect."""
    late: float = 0.0
    """The connection breaks, and the request takes effect some time later."""
    slow: float = 0.0
    """Request and answer take seconds."""
    stale: float = 0.0
    """A watch shows nothing for a while; the cache behind it grows old."""
    broken: float = 0.0
    """A watch ends."""
    expired: float = 0.0
    """A watch that begins is told that its version is too old."""


CALM = Chances()


@dataclass(slots=True)
class Weather:
    """The chances of now, shared by all processes."""

    chance: random.Random
    note: Note
    chances: Chances = field(default_factory=Chances)
    last_work: float = 0.0
    """When a process last asked for a change, signs of life aside."""
    work: deque[str] = field(default_factory=lambda: deque(maxlen=10))
    """What was asked for last."""

    def strikes(self, probability: float) -> bool:
        """Whether a fault of that probability happens now."""
        return probability > 0 and self.chance.random() < probability


class Link:
    """The transport of one life of one process: real requests to the server in memory, with faults between.

    Once it is cut nothing goes through any more: what a dying process still says reaches nobody.
    """

    def __init__(self, api: Server, weather: Weather, process: str) -> None:
        self._api = api
        self._weather = weather
        self._process = process
        self._inner = MemoryTransport(api.handle, api.watch)
        self.is_cut = False

    async def request(self, request: Request) -> Response:
        """See kubecore.client.Transport."""
        weather, chances = self._weather, self._weather.chances
        await self._travel()
        if weather.strikes(chances.refused):
            return self._refuse(request)
        if weather.strikes(chances.lost_before):
            self._fail(request, "lost before it took effect")
        if weather.strikes(chances.late):
            delay = weather.chance.uniform(0.5, 20.0)
            asyncio.get_running_loop().call_later(delay, self._take_effect, request)
            self._fail(request, f"lost; takes effect {delay:.1f} s later")
        response = self._api.handle(request)
        if request.method != "GET" and not _is_sign_of_life(request):
            weather.last_work = asyncio.get_running_loop().time()
            text = f"{self._process}: {_text(request)} -> {response.status}"
            weather.work.append(text)
            weather.note(text)
        if weather.strikes(chances.lost_after):
            self._fail(request, "lost after it took effect")
        await self._travel()
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        """See kubecore.client.Transport."""
        await self._travel()
        weather = self._weather
        if weather.strikes(weather.chances.lost_before):
            self._fail(request, "lost")
        if weather.strikes(weather.chances.expired) and "resourceVersion" in dict(request.query):
            weather.note(f"{self._process}: watch {request.path} expired")
            error = errors.expired("too old resource version")
            yield _Answer(error.code, orjson.dumps(error.to_status()))
            return
        async with self._inner.stream(request) as response:
            streamed: Any = response
            streamed.source = self._shown(request, streamed.source)
            yield response

    async def websocket(self, request: Request, protocols: Sequence[str]) -> NoReturn:
        """Refused: ConnectionFailed."""
        raise ConnectionFailed(f"no websocket for {request.path} ({protocols})")

    async def close(self) -> None:
        """Nothing is open."""
        await asyncio.sleep(0)

    async def _shown(self, request: Request, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The events of a watch, in order but late, until the watch breaks."""
        weather = self._weather
        async for line in lines:
            if weather.strikes(weather.chances.broken):
                self._fail(request, "watch broke")
            await asyncio.sleep(weather.chance.uniform(0.001, 0.02))
            if weather.strikes(weather.chances.stale):
                delay = weather.chance.uniform(0.5, 15.0)
                weather.note(f"{self._process}: watch {request.path} lags by {delay:.1f} s")
                await asyncio.sleep(delay)
            if self.is_cut:
                raise ConnectionFailed("the process has ended")
            yield line

    async def _travel(self) -> None:
        weather = self._weather
        slow = weather.strikes(weather.chances.slow)
        await asyncio.sleep(
            weather.chance.uniform(0.5, 5.0) if slow else weather.chance.uniform(0.0005, 0.004)
        )
        if self.is_cut:
            raise ConnectionFailed("the process has ended")

    def _refuse(self, request: Request) -> Response:
        code, reason = self._weather.chance.choice(
            [
                (500, "InternalError"),
                (503, "ServiceUnavailable"),
                (403, "Forbidden"),
                (429, "TooManyRequests"),
            ]
        )
        self._weather.note(f"{self._process}: {_text(request)} refused with {code}")
        status = StatusError(code, reason, "the simulation refuses this").to_status()
        return Response(code, {}, orjson.dumps(status))

    def _fail(self, request: Request, how: str) -> NoReturn:
        self._weather.note(f"{self._process}: {_text(request)} {how}")
        raise ConnectionFailed(how)

    def _take_effect(self, request: Request) -> None:
        response = self._api.handle(request)
        self._weather.note(f"{self._process}: {_text(request)} took effect late -> {response.status}")


@dataclass(slots=True)
class _Answer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body


def _is_sign_of_life(request: Request) -> bool:
    is_beat = request.path.startswith("/api/v1/nodes/") and b"kubevirt.io/heartbeat" in (request.body or b"")
    return is_beat or "/leases/" in request.path


def _text(request: Request) -> str:
    return f"{request.method} {request.path}"
