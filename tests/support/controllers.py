"""All controllers of virt-controller at work on an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.managers import working
from tests.support.waiting import until

from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.component import add_controllers
from virtplane.compute.launcherpod.inputs import Images

__all__ = ["running_controllers", "until"]


@asynccontextmanager
async def running_controllers(
    server: MemoryApi,
    images: Images,
    served: frozenset[ResourceType] = frozenset(),
    add: Callable[[Cluster], object] = add_controllers,
) -> AsyncIterator[None]:
    """The controllers that `add` adds, started and with full caches; `served` are the kinds of other products
    there.
    """
    client = server.client()
    async with EventRecorder(client, "virtualmachine-controller") as recorder:
        manager = Manager(client)
        add(Cluster(client, manager, recorder, images, served))
        async with working(manager):
            yield
    await client.close()
