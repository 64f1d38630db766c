"""The pod workers of the node: one task for each pod."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kindling.node.pods import identity
from kindling.node.pods.ending import Ending
from kindling.node.pods.pleg import Pleg
from kindling.node.pods.pod_worker import PodWorker
from kubecore.json import JsonObject, get_str
from kubecore.runtime import Informer

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
"""After a worker failed in a way that it does not handle itself."""


class PodWorkers:
    """Starts a worker for each pod, passes changes on to it, and ends it when nothing of the pod is left."""

    def __init__(self, make: Callable[[JsonObject], PodWorker]) -> None:
        self._make = make
        self._workers: dict[str, PodWorker] = {}
        self._group: asyncio.TaskGroup | None = None
        self._orphans: list[JsonObject] = []

    def pod_changed(self, uid: str) -> None:
        """The runtime status of a pod changed."""
        found = self._workers.get(uid)
        if found is not None:
            found.wake()

    def admitted(self) -> list[JsonObject]:
        """The pods that were admitted and have not ended, with the resources that they have been granted."""
        return [each.granted_pod for each in self._workers.values() if each.is_admitted]

    def evict(self, uid: str, ending: Ending) -> bool:
        """Fail a pod, unless it is gone or ending anyway."""
        found = self._workers.get(uid)
        return found is not None and found.evict(ending)

    def uids(self) -> set[str]:
        """The pods that have a worker."""
        return set(self._workers)

    def adopt_orphans(self, uids: set[str], pleg: Pleg) -> None:
        """Clean up pods that are no longer in the API but have left sandboxes, containers, volumes or cgroups
        here: as soon as `run` runs.

        Some have volumes or cgroups only: the agent ended while it set them up or tore them down.
        """
        for uid in uids - {""}:
            observed = pleg.runtime_status(uid)
            owners = [item.labels for item in observed.sandboxes]
            owners += [item.labels for item in observed.all_containers()]
            labels = owners[0] if owners else {}
            name, namespace = labels.get(identity.LABEL_NAME, ""), labels.get(identity.LABEL_NAMESPACE, "")
            _log.info("removing orphaned pod %s/%s (%s)", namespace, name, uid)
            metadata = {"name": name, "namespace": namespace, "uid": uid}
            orphan = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
            if self._group is None:
                self._orphans.append(orphan)
            else:
                self._start(orphan).object_deleted()

    async def run(self, pods: Informer) -> None:
        """Follow the pods of an informer that has synced."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for orphan in self._orphans:
                self._start(orphan).object_deleted()
            pods.add_handler(self._on_event)
            await asyncio.Event().wait()

    def _on_event(self, event: str, _old: JsonObject | None, new: JsonObject) -> None:
        uid = get_str(new, "metadata", "uid")
        found = self._workers.get(uid)
        if event == "DELETED":
            if found is not None:
                found.object_deleted()
            return
        if _old is not None and get_str(_old, "metadata", "uid") != uid:
            # A new pod with the same name; the informer did not see the deletion of the old one.
            previous = self._workers.get(get_str(_old, "metadata", "uid"))
            if previous is not None:
                previous.object_deleted()
        if found is None:
            self._start(new)
        else:
            found.update(new)

    def _start(self, pod: JsonObject) -> PodWorker:
        made = self._make(pod)
        self._workers[made.uid] = made
        if self._group is None:
            raise RuntimeError("the pod workers are not running")
        self._group.create_task(self._work(made), name=f"pod-{made.uid}")
        return made

    async def _work(self, made: PodWorker) -> None:
        while True:
            try:
                await made.run()
                break
            except Exception:
                # An unexpected exception in the worker of one pod must not stop the pods of the whole node.
                _log.exception("syncing pod %s failed, trying again in %g s", made.uid, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
        self._workers.pop(made.uid, None)
