"""HTTP servers on ports of nodes, inside their network namespaces; each request gets one short answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kindling.network.inside import called_in

_log = logging.getLogger(__name__)

_SECONDS = 5.0
"""For one request."""
_MAX_HEAD = 16 * 1024
_MAX_CONNECTIONS, _MAX_OF_ALL = 64, 1024
"""At one port of one node, and at all; more are closed at once."""

Answer = Callable[[str], bytes]
"""The whole HTTP response for a path."""


@dataclass(frozen=True, slots=True)
class NodePort:
    """An address and port of a node. The address `::` means all, of both families."""

    node: str
    address: str
    port: int


class NodeServers:
    """The open servers; `namespaces` are the nodes' network namespaces. A context manager."""

    def __init__(self, namespaces: Mapping[str, Path]) -> None:
        self._namespaces = namespaces
        self._servers: dict[NodePort, asyncio.Server] = {}
        self._answers: dict[NodePort, Answer] = {}
        self._open: Counter[NodePort] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close(tuple(self._servers))

    @property
    def opened(self) -> Collection[NodePort]:
        """Where servers are."""
        return self._servers.keys()

    async def open(self, place: NodePort, answer: Answer) -> None:
        """Answer requests there from now on; a server that is there answers the new way. Raises OSError."""
        self._answers[place] = answer
        if place in self._servers:
            return
        listener = await asyncio.to_thread(_listener, self._namespaces[place.node], place)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._respond(place, reader, writer)

        self._servers[place] = await asyncio.start_server(connected, sock=listener, limit=_MAX_HEAD)

    def close(self, places: Collection[NodePort]) -> None:
        """End these servers."""
        for place in places:
            self._servers.pop(place).close()
            del self._answers[place]

    async def _respond(
        self, place: NodePort, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._open[place] += 1
        try:
            answer = self._answers.get(place)
            is_admitted = self._open[place] <= _MAX_CONNECTIONS and self._open.total() <= _MAX_OF_ALL
            if answer is not None and is_admitted:
                async with asyncio.timeout(_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(_path(head)))
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            _log.debug("a request to port %d of node %s broke off: %s", place.port, place.node, error)
        finally:
            self._open[place] -= 1
            if not self._open[place]:
                del self._open[place]
            writer.close()


def response(status: str, content_type: str, body: bytes, *headers: str) -> bytes:
    """A whole HTTP response."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        "X-Content-Type-Options: nosniff",
        *headers,
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _path(head: bytes) -> str:
    """The path that a request's head asks for; empty if it is none."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return words[1].partition("?")[0] if len(words) > 1 else ""


def _listener(namespace: Path, place: NodePort) -> socket.socket:
    """A listening socket in a network namespace. Raises OSError."""
    is_both = place.address == "::"
    family = socket.AF_INET6 if is_both else socket.AF_INET
    address = (place.address, place.port)
    return called_in(
        namespace,
        lambda: socket.create_server(
            address, family=family, backlog=_MAX_CONNECTIONS, dualstack_ipv6=is_both
        ),
    )
