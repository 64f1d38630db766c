"""snapshot-controller: the component."""

from __future__ import annotations

import asyncio
import logging

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS
from kubecore.runtime import Context, EventRecorder, Informer, LeaderElector, Manager
from virtplane.api.resources import VOLUME_SNAPSHOTS
from virtplane.api.volumesnapshot_crds import is_ours
from virtplane.storage.volumesnapshot.contents import ContentController
from virtplane.storage.volumesnapshot.snapshots import SnapshotController

logger = logging.getLogger(__name__)

LEASE = "snapshot-controller-leader"


class SnapshotControllerComponent:
    """Works as long as the cluster's snapshot API is the one that virt-operator has installed."""

    name = "snapshot-controller"

    async def run(self, context: Context) -> None:
        """Run until cancelled."""
        client = context.client(self.name)
        manager = Manager(client)
        definitions = manager.informer(
            CUSTOM_RESOURCE_DEFINITIONS, field_selector=f"metadata.name={VOLUME_SNAPSHOTS.group_resource}"
        )
        elector = LeaderElector(client, LEASE, context.namespace, context.identity or self.name)
        manager.add_runnable(self.name, lambda: _while_ours(client, definitions, elector))
        await manager.run()


async def _while_ours(client: Client, definitions: Informer, elector: LeaderElector) -> None:
    """Lead whenever the definition is ours, and stop as soon as somebody else takes it over."""
    changed = asyncio.Event()

    def observe(_: str, __: JsonObject | None, ___: JsonObject) -> None:
        changed.set()

    definitions.add_handler(observe)
    while True:
        while not any(map(is_ours, definitions.list())):
            changed.clear()
            await changed.wait()
        logger.info("the snapshot API is virtplane's own: the snapshot controller works")
        work = asyncio.create_task(elector.run(lambda: control(client)), name="snapshot-controller-work")
        try:
            while any(map(is_ours, definitions.list())) and not work.done():
                changed.clear()
                waiting = asyncio.create_task(changed.wait(), name="snapshot-api-changes")
                await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if work.done():
                work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        logger.info("the snapshot API is no longer virtplane's own: the snapshot controller stops")


async def control(client: Client) -> None:
    """The snapshot controller, until cancelled."""
    async with EventRecorder(client, "snapshot-controller") as recorder:
        manager = Manager(client)
        SnapshotController(client, manager, recorder)
        ContentController(client, manager, recorder)
        await manager.run()
