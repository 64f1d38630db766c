"""snapshot-controller: the component."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS
from kubecore.runtime import Context, EventRecorder, Informer, LeaderElector, Manager
from virtplane.api.resources import VOLUME_GROUP_SNAPSHOTS, VOLUME_SNAPSHOTS
from virtplane.api.volumesnapshot_crds import is_ours
from virtplane.storage.volumesnapshot.contents import ContentController
from virtplane.storage.volumesnapshot.group_contents import GroupContentController
from virtplane.storage.volumesnapshot.groups import GroupController
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
        single, groups = (
            manager.informer(
                CUSTOM_RESOURCE_DEFINITIONS, field_selector=f"metadata.name={kind.group_resource}"
            )
            for kind in (VOLUME_SNAPSHOTS, VOLUME_GROUP_SNAPSHOTS)
        )
        elector = LeaderElector(client, LEASE, context.namespace, context.identity or self.name)
        manager.add_runnable(self.name, lambda: _while_ours(client, single, groups, elector))
        await manager.run()


async def _while_ours(client: Client, single: Informer, groups: Informer, elector: LeaderElector) -> None:
    """Lead whenever the definitions are ours, and stop as soon as somebody else takes them over.

    Those of groups are ours only together with those of single snapshots.
    """
    changed = asyncio.Event()

    def observe(_: str, __: JsonObject | None, ___: JsonObject) -> None:
        changed.set()

    def state() -> tuple[bool, bool]:
        is_single, is_groups = (any(map(is_ours, informer.list())) for informer in (single, groups))
        return is_single, is_single and is_groups

    for informer in (single, groups):
        informer.add_handler(observe)
    while True:
        while not (begun := state())[0]:
            changed.clear()
            await changed.wait()
        also = ", of groups of volumes too" if begun[1] else ""
        logger.info("the snapshot API is virtplane's own: the snapshot controller works%s", also)
        controlling = partial(control, client, groups=begun[1])
        work = asyncio.create_task(elector.lead(controlling), name="snapshot-controller-work")
        try:
            while state() == begun and not work.done():
                changed.clear()
                waiting = asyncio.create_task(changed.wait(), name="snapshot-api-changes")
                await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if work.done():
                work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        logger.info("whose the snapshot API is has changed: the snapshot controller stops")


async def control(client: Client, *, groups: bool) -> None:
    """The snapshot controller, until cancelled; `groups`: the API of groups is there, and ours too."""
    async with EventRecorder(client, "snapshot-controller") as recorder:
        manager = Manager(client)
        SnapshotController(client, manager, recorder, groups=groups)
        ContentController(client, manager, recorder)
        if groups:
            GroupController(client, manager, recorder)
            GroupContentController(client, manager, recorder)
        await manager.run()
