"""Health checks of services whose external traffic policy is Local, as kube-proxy serves them.

A load balancer asks each node on the service's ``healthCheckNodePort``: 200 with the number of its endpoints,
or 503 if it has none. The servers listen on the node's address, inside the node's network namespace.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import orjson

from kindling.network.inside import called_in
from kindling.network.services import HealthCheck

_log = logging.getLogger(__name__)

_SECONDS = 5.0
"""For one request."""
_MAX_HEAD = 16 * 1024
_MAX_CONNECTIONS, _MAX_OF_ALL = 64, 1024
"""At one port of one node, and at all; more are closed at once."""

_Key = tuple[str, int]
"""Node and port."""


@dataclass(slots=True)
class _Answer:
    namespace: str
    name: str
    endpoints: int

    def encoded(self) -> bytes:
        """The whole HTTP response."""
        status = "200 OK" if self.endpoints else "503 Service Unavailable"
        body = orjson.dumps(
            {
                "service": {"namespace": self.namespace, "name": self.name},
                "localEndpoints": self.endpoints,
                "serviceProxyHealthy": True,
            }
        )
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
            f"X-Load-Balancing-Endpoint-Weight: {self.endpoints}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


class HealthChecks:
    """The servers of all nodes; `nodes` are their network namespaces and addresses. A context manager."""

    def __init__(self, nodes: Mapping[str, tuple[Path, str]]) -> None:
        self._nodes = nodes
        self._answers: dict[_Key, _Answer] = {}
        self._servers: dict[_Key, asyncio.Server] = {}
        self._open: Counter[_Key] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    async def serve(self, checks: Iterable[HealthCheck]) -> bool:
        """Serve these checks and no others; returns whether every port could be opened."""
        self._answers = {
            (node, check.port): _Answer(check.namespace, check.name, check.endpoints.get(node, 0))
            for check in checks
            for node in self._nodes
        }
        for key in [key for key in self._servers if key not in self._answers]:
            self._servers.pop(key).close()
        all_open = True
        for key, answer in self._answers.items():
            if key not in self._servers:
                try:
                    self._servers[key] = await self._server(key)
                except OSError as error:
                    text = "serving health checks of service %s/%s on port %d of node %s failed: %s"
                    _log.error(text, answer.namespace, answer.name, key[1], key[0], error)
                    all_open = False
        return all_open

    async def _server(self, key: _Key) -> asyncio.Server:
        node, port = key
        listener = await asyncio.to_thread(_listener, *self._nodes[node], port)

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._respond(key, reader, writer)

        return await asyncio.start_server(connected, sock=listener, limit=_MAX_HEAD)

    async def _respond(self, key: _Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[key] += 1
        try:
            answer = self._answers.get(key)
            is_admitted = self._open[key] <= _MAX_CONNECTIONS and self._open.total() <= _MAX_OF_ALL
            if answer is not None and is_admitted:
                async with asyncio.timeout(_SECONDS):
                    # Every path and method get the same answer, as with kube-proxy.
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer.encoded())
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            _log.debug("a health check on port %d of node %s broke off: %s", key[1], key[0], error)
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
            writer.close()


def _listener(namespace: Path, address: str, port: int) -> socket.socket:
    """A listening socket in a network namespace. Raises OSError."""
    return called_in(namespace, lambda: socket.create_server((address, port), backlog=_MAX_CONNECTIONS))
