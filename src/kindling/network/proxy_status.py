"""What the service proxy says of itself on each node, at the ports and paths of kube-proxy.

Load balancers ask port 10256 whether a node serves: `/healthz` and `/livez` are 503 once the node's rules
could not be brought up to date for a minute. Port 10249, which the node alone reaches, tells the kind of its
rules (`/proxyMode`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self

import orjson

from kindling.network.node_servers import Answer, NodePort, NodeServers, response

_log = logging.getLogger(__name__)

HEALTH_PORT, STATUS_PORT = 10256, 10249
_MAX_BEHIND = timedelta(minutes=1)
"""How long a node may serve by old rules."""
_TEXT = "text/plain; charset=utf-8"


class ProxyStatus:
    """The servers of all nodes; `nodes` are their network namespaces. A context manager."""

    def __init__(
        self, nodes: Mapping[str, Path], *, has_ipv6: bool, now: Callable[[], datetime] | None = None
    ) -> None:
        self._nodes = nodes
        self._everywhere, self._now = "::" if has_ipv6 else "0.0.0.0", now or _utc_now
        self._servers = NodeServers(nodes)
        self._refused: set[NodePort] = set()
        self._loaded: dict[str, datetime] = {}
        """When the rules of nodes that are behind were last up to date."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._servers.close(tuple(self._servers.opened))

    async def serve(self) -> None:
        """Open what is not open; a port that another program has is logged once, and tried again."""
        for node in self._nodes:
            answers: dict[NodePort, Answer] = {
                NodePort(node, self._everywhere, HEALTH_PORT): partial(self._health, node),
                NodePort(node, "127.0.0.1", STATUS_PORT): _status,
            }
            for place, answer in answers.items():
                if place in self._servers.opened:
                    continue
                try:
                    await self._servers.open(place, answer)
                    self._refused.discard(place)
                except OSError as error:
                    if place not in self._refused:
                        text = "serving the state of the service proxy on port %d of node %s failed: %s"
                        _log.error(text, place.port, node, error)
                    self._refused.add(place)

    def note(self, node: str, *, is_loaded: bool) -> None:
        """Say whether the node's rules are up to date."""
        if is_loaded:
            self._loaded.pop(node, None)
        else:
            self._loaded.setdefault(node, self._now())

    def _health(self, node: str, path: str) -> bytes:
        if path not in ("/healthz", "/livez"):
            return response("404 Not Found", _TEXT, b"404 page not found\n")
        now = self._now()
        loaded = self._loaded.get(node, now)
        status = "200 OK" if now - loaded <= _MAX_BEHIND else "503 Service Unavailable"
        body = {"lastUpdated": loaded.isoformat(), "currentTime": now.isoformat()}
        return response(status, "application/json", orjson.dumps(body))


def _status(path: str) -> bytes:
    body = {"/proxyMode": b"nftables", "/healthz": b"ok"}.get(path)
    if body is None:
        return response("404 Not Found", _TEXT, b"404 page not found\n")
    return response("200 OK", _TEXT, body)


def _utc_now() -> datetime:
    return datetime.now(UTC)
