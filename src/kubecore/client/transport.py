"""The interface between the client and the network. Tests replace this and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    import aiohttp

Query = Mapping[str, str] | Sequence[tuple[str, str]]

REQUEST_SECONDS = 120.0
"""How long a request may take, its whole answer included; servers themselves end most after 60 s."""


class ConnectionFailed(Exception):
    """The server could not be reached, or the connection broke. The original error is the cause."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `path` starts with a slash, `query` is not encoded; names in it may repeat.

    The whole response must arrive within `deadline_seconds`. The default is `REQUEST_SECONDS`; streamed
    responses have no limit by default.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    deadline_seconds: float | None = None

    def header(self, name: str) -> str:
        """The first value of a header, or nothing."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body; None where there is none."""
        return orjson.loads(self.body) if self.body else None


class StreamedResponse(Protocol):
    """A response whose body is read as it arrives."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of the body, until the server ends it. Raises ConnectionFailed when it breaks."""
        ...


class Transport(Protocol):
    """Carries requests to one server. Raises ConnectionFailed for anything but an HTTP answer in time."""

    async def request(self, request: Request) -> Response:
        """Send and read the whole response, whatever its status."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send and return the response as soon as its headers have arrived."""
        ...

    async def websocket(self, request: Request, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        """Upgrade to a websocket. Raises kubecore.errors.StatusError when the server refuses."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines in `chunks` without their ends, of any length; a last line without an end counts."""
    pending: list[bytes] = []
    async for chunk in chunks:
        head, *rest = chunk.split(b"\n")
        pending.append(head)
        for piece in rest:
            yield b"".join(pending)
            pending = [piece]
    tail = b"".join(pending)
    if tail:
        yield tail
