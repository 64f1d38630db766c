"""DaemonSets: one pod on every node that fits."""

from __future__ import annotations

import asyncio

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment, own_selector, owned, soonest
from kindling.controllers.workloads import daemon_placement as placement
from kindling.controllers.workloads import revisions
from kindling.controllers.workloads.adoption import Claimer
from kindling.controllers.workloads.pod_writes import PodWrites, all_of
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import DAEMON_SETS, NODES, PODS
from kubecore.runtime import DONE, Key, Result, key_of
from kubecore.runtime.informer import EventType
from kubecore.runtime.queue import ItemBackoff

NAME = "daemonset-controller"


class DaemonSetController:
    """Keyed by daemon set."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        manager = environment.manager
        self._sets = manager.informer(DAEMON_SETS)
        self._nodes = manager.informer(NODES)
        known = revisions.informer(manager)
        self._revisions = revisions.History(self._client, DAEMON_SETS, known, placement.HASH_LABEL)
        self._claimer = Claimer(self._client, DAEMON_SETS, PODS)
        self._due: dict[str, float] = {}
        self._failures: ItemBackoff[tuple[Key, str]] = ItemBackoff(1.0, 900.0)
        self._controller = environment.controller(NAME, self.reconcile)
        self._controller.watch(self._sets)
        self._controller.depend(self._nodes)
        self._controller.depend(known)
        self._nodes.add_handler(self._node_changed)
        self._pods = owned(self._controller, manager.informer(PODS), self._sets, DAEMON_SETS.kind)
        self._writes = PodWrites(self._client, environment.recorder(NAME), self._pods.expectations)

    def _node_changed(self, _event: EventType, old: JsonObject | None, node: JsonObject) -> None:
        if old is not None and _node_view(old) == _node_view(node):
            return
        for found in self._sets.list():
            self._controller.enqueue(key_of(found))

    async def reconcile(self, key: Key) -> Result:
        """Sync one daemon set."""
        found = self._sets.get(*key)
        if found is None:
            self._pods.expectations.forget(key)
            return DONE
        if meta.is_being_deleted(found):
            return DONE
        # Observe the expectations before reading the caches.
        may_act = await self._pods.expectations.settled(key)
        revision = await self._revisions.newest(found)
        digest = meta.labels(revision)[placement.HASH_LABEL]
        candidates = self._pods.of(found) + self._pods.orphans(key[0])
        mine = await self._claimer.claim(found, own_selector(found), candidates)
        pods: dict[str, list[JsonObject]] = {}
        for pod in mine:
            pods.setdefault(placement.target_node(pod), []).append(pod)
        nodes = self._nodes.list()
        wait: float | None = None
        if may_act:
            wait = await self._act(key, found, nodes, pods, digest)
        await self._clean_up(found, digest, mine)
        now = self._environment.clock()
        status = placement.status(found, nodes, pods, digest, now)
        if status != get_object(found, "status"):
            await self._client.update(DAEMON_SETS, {**found, "status": status}, "status")
        waits = [
            pod_facts.seconds_until_available(pod, get_int(found, "spec", "minReadySeconds"), now)
            for pod in mine
        ]
        return soonest((*waits, wait))

    async def _act(
        self,
        key: Key,
        found: JsonObject,
        nodes: list[JsonObject],
        pods: dict[str, list[JsonObject]],
        digest: str,
    ) -> float | None:
        work = placement.plan(found, nodes, pods)
        wait: float | None = None
        if work.failed:
            work.delete, wait = self._held_back(key, work)
        rolling = get_str(found, "spec", "updateStrategy", "type") != "OnDelete"
        if rolling and not work.create and not work.delete:
            work = placement.plan_update(found, nodes, pods, digest, self._environment.clock())
        creations = [self._create(key, found, node, digest) for node in work.create]
        deletions = [self._writes.delete(key, found, pod) for pod in work.delete]
        await all_of([*creations, *deletions])
        return wait

    def _held_back(self, key: Key, work: placement.Work) -> tuple[list[JsonObject], float | None]:
        """Failed pods are replaced with exponential back-off."""
        delete, wait = [], None
        now = asyncio.get_running_loop().time()
        failed = {meta.uid(pod) for pod in work.failed}
        for pod in work.delete:
            if meta.uid(pod) not in failed:
                delete.append(pod)
                continue
            item = (key, placement.target_node(pod))
            due = self._due.setdefault(meta.uid(pod), now + self._failures.next_delay(item) - 1.0)
            if due <= now:
                self._due.pop(meta.uid(pod), None)
                delete.append(pod)
            else:
                wait = min(due - now, wait or due - now)
        return delete, wait

    async def _create(self, key: Key, found: JsonObject, node: str, digest: str) -> None:
        labels = {
            placement.HASH_LABEL: digest,
            placement.GENERATION_LABEL: str(placement.template_generation(found)),
        }
        pod = pod_facts.from_template(get_object(found, "spec", "template"), found, DAEMON_SETS, labels)
        pod["spec"] = placement.pod_spec(found, node)
        await self._writes.create(key, found, pod)

    async def _clean_up(self, found: JsonObject, digest: str, pods: list[JsonObject]) -> None:
        """Delete revisions beyond the history limit that no pod uses."""
        used = {meta.labels(pod).get(placement.HASH_LABEL) for pod in pods} | {digest}
        await self._revisions.trim(found, lambda item: meta.labels(item).get(placement.HASH_LABEL) in used)


def _node_view(node: JsonObject) -> tuple[object, ...]:
    return meta.labels(node), get_list(node, "spec", "taints"), get_object(node, "spec").get("unschedulable")
