"""Components: parts of the product that run until cancelled, and what they are given.

Which components share a process is configuration. Each still acts under its own identity, through the
client that `Context.client` gives for its name.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from prometheus_client import REGISTRY, CollectorRegistry

from kubecore.client import Client
from kubecore.logs import on_behalf_of
from kubecore.runtime.health import Health
from kubecore.runtime.queuemetrics import QueueMetrics

logger = logging.getLogger(__name__)

ClientFactory = Callable[[str], Client]
"""Gives the client of a component by the component's name. The context closes it."""


@dataclass(slots=True)
class Context:
    """What the components of one process share.

    `namespace` is where they are installed, `identity` names this process among its replicas (a pod's
    name), `node_name` the node it runs on. `settings` are the components' own options by name.
    """

    client_factory: ClientFactory
    namespace: str = "default"
    identity: str = ""
    node_name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    registry: CollectorRegistry = REGISTRY
    queues: QueueMetrics | None = None
    """Where components tell of their controllers' queues, if they do."""
    _clients: dict[str, Client] = field(default_factory=dict)

    def client(self, component: str) -> Client:
        """The client that acts as `component`; the same one on every call."""
        if component not in self._clients:
            self._clients[component] = self.client_factory(component)
        return self._clients[component]

    async def close(self) -> None:
        """Close all clients that were given out."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()


@runtime_checkable
class Component(Protocol):
    """One part of the product: its `name` is its identity."""

    name: str

    async def run(self, context: Context) -> None:
        """Work until cancelled. Returning or raising ends the process."""
        ...


class CannotRun(Exception):
    """A component cannot work here. The message is for the administrator: why not, and what to do."""


class ComponentEnded(Exception):
    """A component returned although it must run until it is cancelled."""


async def run_components(components: Sequence[Component], context: Context) -> None:
    """Run all components until cancelled; when one ends, all end and the reason is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for component in components:
                group.create_task(run_component(component, context), name=component.name)
    finally:
        await context.close()


async def run_component(component: Component, context: Context) -> None:
    """Run one component, which logs under its name, until cancelled. Raises ComponentEnded if it returns."""
    with on_behalf_of(component.name):
        await component.run(context)
    raise ComponentEnded(f"{component.name} ended")


async def until_signalled(run: Callable[[], Awaitable[None]]) -> None:
    """Run until SIGTERM or SIGINT, then cancel and wait for an orderly end."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logger.info("stopping")
