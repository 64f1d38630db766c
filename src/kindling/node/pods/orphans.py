"""What pods leave on a node that have no worker any more, found again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kindling.node.pods.pleg import Pleg
from kindling.node.pods.pod_workers import PodWorkers


class Orphans:
    """Has workers take down what is left of pods that the node no longer has.

    A pod's end is not always the last that happens to it: a sandbox that was being made when its pod was
    deleted may be completed afterwards, or may get its cgroup again. `traces` lists the pods of files and
    cgroups (it runs in a thread), `present` those that the API has.
    """

    def __init__(
        self,
        pleg: Pleg,
        pod_workers: PodWorkers,
        traces: Callable[[], set[str]],
        present: Callable[[], Iterable[str]],
    ) -> None:
        self._pleg = pleg
        self._pod_workers = pod_workers
        self._traces = traces
        self._present = present
        self._seen: set[str] = set()

    async def adopt(self) -> None:
        """Adopt all that there are now. Only right before the pod workers run."""
        self._pod_workers.adopt_orphans(await self._find(), self._pleg)

    async def sweep(self) -> None:
        """Adopt those that the last sweep saw as well: what was just removed may still be listed."""
        found = await self._find()
        self._pod_workers.adopt_orphans(found & self._seen, self._pleg)
        self._seen = found

    async def _find(self) -> set[str]:
        traces = await asyncio.to_thread(self._traces)
        # Who has a worker is asked last: a pod that came meanwhile is no orphan.
        return (traces | self._pleg.uids()) - self._pod_workers.uids() - set(self._present()) - {""}
