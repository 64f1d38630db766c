"""Health checks of services whose external traffic policy is Local, as kube-proxy serves them.

A load balancer asks each node on the service's ``healthCheckNodePort``: 200 with the number of its endpoints,
or 503 if it has none. The servers listen on the node's address.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import orjson

from kindling.network.node_servers import Answer, NodePort, NodeServers, response
from kindling.network.services import HealthCheck

_log = logging.getLogger(__name__)


class HealthChecks:
    """The servers of all nodes; `nodes` are their network namespaces and addresses. A context manager."""

    def __init__(self, nodes: Mapping[str, tuple[Path, str]]) -> None:
        self._addresses = {node: address for node, (_, address) in nodes.items()}
        self._servers = NodeServers({node: namespace for node, (namespace, _) in nodes.items()})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._servers.close(tuple(self._servers.opened))

    async def serve(self, checks: Iterable[HealthCheck]) -> bool:
        """Serve these checks and no others; returns whether every port could be opened."""
        wanted = {
            NodePort(node, address, check.port): check
            for check in checks
            for node, address in self._addresses.items()
        }
        self._servers.close([place for place in self._servers.opened if place not in wanted])
        all_open = True
        for place, check in wanted.items():
            try:
                await self._servers.open(place, _answer(check, check.endpoints.get(place.node, 0)))
            except OSError as error:
                text = "serving health checks of service %s/%s on port %d of node %s failed: %s"
                _log.error(text, check.namespace, check.name, place.port, place.node, error)
                all_open = False
        return all_open


def _answer(check: HealthCheck, endpoints: int) -> Answer:
    """The answer to every path and method, as with kube-proxy."""
    status = "200 OK" if endpoints else "503 Service Unavailable"
    body = orjson.dumps(
        {
            "service": {"namespace": check.namespace, "name": check.name},
            "localEndpoints": endpoints,
            "serviceProxyHealthy": True,
        }
    )
    weight = f"X-Load-Balancing-Endpoint-Weight: {endpoints}"
    answer = response(status, "application/json", body, weight)
    return lambda _path: answer
