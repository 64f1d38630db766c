"""All controllers of virt-controller at work on an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.component import add_controllers
from virtplane.compute.launcherpod.inputs import Images


@asynccontextmanager
async def running_controllers(
    server: MemoryApi, images: Images, served: frozenset[ResourceType] = frozenset()
) -> AsyncIterator[None]:
    """The controllers, started and with full caches; `served` are the kinds of other products there."""
    client = server.client()
    async with EventRecorder(client, "virtualmachine-controller") as recorder:
        manager = Manager(client)
        add_controllers(Cluster(client, manager, recorder, images, served))
        task = asyncio.create_task(manager.run())
        await manager.wait_started()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    await client.close()


async def until(check: Callable[[], Any]) -> Any:
    """What `check` returns once it is true. Raises TimeoutError after half a minute."""
    async with asyncio.timeout(30):
        while not (found := check()):  # noqa: ASYNC110 - any change of the server may be the one
            await asyncio.sleep(0.01)
    return found
