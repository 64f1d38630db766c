"""A manager shares informers between controllers and runs both in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from kubecore.runtime.controller import Controller
from kubecore.runtime.informer import Informer
from kubecore.runtime.queuemetrics import QueueMetrics
from kubecore.runtime.store import Cached, IndexFunction

_InformerKey = tuple[ResourceType, type[Any] | None, bool, str | None, str, str]


class Manager:
    """Owns the informers, controllers and extra tasks of one client identity.

    `run` starts informers, waits until each has its first list, then starts controllers and runnables;
    cancelling it stops everything, controllers first. Informers of the kinds in `absent`, which the cluster
    does not serve, stay empty. The controllers' queues are told of in `queues`.
    """

    def __init__(
        self,
        client: Client,
        absent: Collection[ResourceType] = (),
        queues: QueueMetrics | None = None,
    ) -> None:
        self.client = client
        self._queues = queues
        self._absent = frozenset(absent)
        self._informers: dict[_InformerKey, Informer[Any]] = {}
        self._controllers: list[Controller] = []
        self._runnables: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._started = False
        self._ready = asyncio.Event()

    @property
    def has_started(self) -> bool:
        """Whether all caches have synced and the controllers run."""
        return self._ready.is_set()

    @property
    def controllers(self) -> Sequence[Controller]:
        """The controllers that were added."""
        return self._controllers

    async def wait_started(self) -> None:
        """Wait until all caches have synced and the controllers run."""
        await self._ready.wait()

    def informer(
        self,
        resource: ResourceType,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[Cached]] | None = None,
        transform: Callable[[JsonObject], JsonObject] | None = None,
        metadata_only: bool = False,
        struct: type[Cached] | None = None,
    ) -> Informer[Cached]:
        """The shared informer of a resource and selection, made on first use; `indexers` are added to it.

        With a `struct` it caches structs, and with `metadata_only` what names an object, apart from those who
        ask for documents. Raises RuntimeError once the manager runs. `transform` is that of the first call.
        """
        key = (resource, struct, metadata_only, namespace, label_selector, field_selector)
        informer = self._informers.get(key)
        if informer is None:
            if self._started:
                raise RuntimeError("informers must be requested before the manager runs")
            informer = Informer(
                self.client,
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                transform=transform,
                metadata_only=metadata_only,
                struct=struct,
            )
            self._informers[key] = informer
        for name, function in (indexers or {}).items():
            informer.add_index(name, function)
        return informer

    def add(self, controller: Controller) -> None:
        """Run `controller` with this manager."""
        if self._queues is not None:
            controller.measure(self._queues)
        self._controllers.append(controller)

    def add_runnable(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run another task beside the controllers, once the caches have synced.

        When it returns or raises, the manager stops with an error: runnables run until cancelled.
        """
        self._runnables.append((name, run))

    async def run(self) -> None:
        """Run until cancelled. An exception in any part ends all of it."""
        self._started = True
        async with asyncio.TaskGroup() as informers:
            tasks = [
                informers.create_task(self._follow(informer), name=f"informer-{informer.resource.plural}")
                for informer in self._informers.values()
            ]
            try:
                for informer in self._informers.values():
                    await informer.wait_synced()
                async with asyncio.TaskGroup() as workers:
                    for controller in self._controllers:
                        workers.create_task(controller.run(), name=f"controller-{controller.name}")
                    for name, run in self._runnables:
                        workers.create_task(_forever(name, run), name=name)
                    self._ready.set()
            finally:
                for task in tasks:
                    task.cancel()

    async def _follow(self, informer: Informer[Any]) -> None:
        await (informer.stay_empty() if informer.resource in self._absent else informer.run())


async def _forever(name: str, run: Callable[[], Awaitable[None]]) -> None:
    await run()
    raise RuntimeError(f"{name} ended although it must run until it is cancelled")
