"""The transport to the in-memory API server: no connection, one event loop iteration per request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import orjson

from kubecore.client import ConnectionFailed, Request, Response, StreamedResponse
from kubecore.errors import StatusError


@dataclass(slots=True)
class _Stream:
    status: int
    headers: Mapping[str, str]
    source: AsyncIterator[bytes]

    def chunks(self) -> AsyncIterator[bytes]:
        return self.source


class MemoryTransport:
    """See kubecore.client.Transport; `handle` answers requests, `watch` starts watches."""

    def __init__(
        self, handle: Callable[[Request], Response], watch: Callable[[Request], AsyncIterator[bytes]]
    ) -> None:
        self._handle = handle
        self._watch = watch

    async def request(self, request: Request) -> Response:
        """The response."""
        await asyncio.sleep(0)
        return self._handle(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedResponse]:
        """A watch."""
        await asyncio.sleep(0)
        try:
            lines = self._watch(request)
        except StatusError as error:
            yield _Stream(error.code, error.headers, _once(orjson.dumps(error.to_status())))
            return
        yield _Stream(200, {}, lines)

    async def websocket(self, request: Request, protocols: Sequence[str]) -> NoReturn:
        """Refused: ConnectionFailed."""
        raise ConnectionFailed(f"the server in memory has no websocket for {request.path} ({protocols})")

    async def close(self) -> None:
        """Nothing is open."""
        await asyncio.sleep(0)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
