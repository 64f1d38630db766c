"""The scheduling loop: pods are scheduled one after the other, and bound concurrently."""

from __future__ import annotations

import asyncio
import logging
import random

from kindling.controllers.volumes.binding import SELECTED_NODE, bound_volume
from kindling.scheduler import snapshot as snapshots
from kindling.scheduler import volume_rules
from kindling.scheduler.decision import Placement, Unschedulable, decide
from kindling.scheduler.placed import Memory
from kindling.scheduler.preemption import Preemption, priority
from kindling.scheduler.queue import SchedulingQueue, Waiting
from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.claim import is_bound
from kubecore.objects.times import now_rfc3339
from kubecore.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from kubecore.runtime import EventRecorder, Key, Manager, key_of
from kubecore.runtime.informer import EventType

logger = logging.getLogger(__name__)

NAME = "default-scheduler"
VOLUME_SECONDS = 600.0
"""How long a pod's claims may take to be bound."""


class VolumesNotBound(Exception):
    """A pod's claims were not bound in time, or their provisioner rejected the selected node."""


def needs_node(pod: JsonObject, scheduler: str = NAME) -> bool:
    """Whether the pod waits for this scheduler."""
    return (
        not get_str(pod, "spec", "nodeName")
        and get_str(pod, "spec", "schedulerName", default=NAME) == scheduler
        and not meta.is_being_deleted(pod)
        and not get_list(pod, "spec", "schedulingGates")
        and get_str(pod, "status", "phase") not in ("Succeeded", "Failed")
    )


class Scheduler:
    """Fills the queue from informer events and schedules the pods in it."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._recorder = EventRecorder(manager.client, NAME)
        self._queue = SchedulingQueue()
        self._changed = asyncio.Event()
        self._claims_changed = asyncio.Event()
        self._assumed: dict[str, str] = {}
        self._placed = Memory()
        self._nominated: dict[str, tuple[str, int]] = {}
        """Pods for which others were preempted, by uid: where room is kept, and their priority."""
        self._nodes = manager.informer(NODES)
        self._pods = manager.informer(PODS)
        self._namespaces = manager.informer(NAMESPACES)
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = manager.informer(PERSISTENT_VOLUMES)
        self._classes = manager.informer(STORAGE_CLASSES)
        self._csi_nodes = manager.informer(CSI_NODES)
        self._csi_drivers = manager.informer(CSI_DRIVERS)
        self._capacities = manager.informer(CSI_STORAGE_CAPACITIES)
        self._attachments = manager.informer(VOLUME_ATTACHMENTS)
        self._pods.add_handler(self._pod_changed)
        self._nodes.add_handler(self._node_changed)
        self._claims.add_handler(self._claim_changed)
        csi = (self._csi_nodes, self._csi_drivers, self._capacities, self._attachments)
        for informer in (self._claims, self._volumes, self._classes, *csi):
            informer.add_handler(self._anything_changed)
        manager.add_runnable("scheduler", self.run)
        manager.add_runnable("scheduler-events", self._recorder.run)

    async def run(self) -> None:
        """Schedule until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as bindings:
            while True:
                waiting = self._queue.next(loop.time())
                if waiting is not None:
                    await self._schedule(waiting, bindings)
                    continue
                self._changed.clear()
                pause = self._queue.seconds_to_next(loop.time())
                try:
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    async def _schedule(self, waiting: Waiting, bindings: asyncio.TaskGroup) -> None:
        key = waiting.key
        pod = self._pods.get(*key)
        if pod is None or not needs_node(pod):
            self._queue.remove(key)
            return
        try:
            result = decide(pod, self._snapshot(pod), random.choice)
        except Exception:
            # A pod that the rules cannot handle must not end the scheduling of all others.
            logger.exception("no node can be chosen for %s/%s, which waits", *key)
            self._queue.failed(key, asyncio.get_running_loop().time())
            return
        if isinstance(result, Unschedulable):
            now = asyncio.get_running_loop().time()
            self._queue.failed(key, now)
            if result.preemption is not None:
                self._nominated[meta.uid(pod)] = (result.preemption.node, priority(pod))
                await self._make_room(pod, result.preemption)
            elif not self._is_room_coming(pod):
                self._nominated.pop(meta.uid(pod), None)
            if waiting.is_news(result.message, now):
                self._recorder.event(pod, "Warning", "FailedScheduling", result.message)
            await self._report_failure(pod, result.message)
            return
        self._queue.take(key)
        self._assumed[meta.uid(pod)] = result.node
        self._nominated.pop(meta.uid(pod), None)
        bindings.create_task(self._bind(key, pod, result), name=f"bind-{key[0]}-{key[1]}")

    def _is_room_coming(self, pod: JsonObject) -> bool:
        """Whether pods of lower priority still end on the node whose room is kept for the pod."""
        node, least = self._nominated.get(meta.uid(pod), ("", 0))
        return any(
            meta.is_being_deleted(other) and priority(other) < least
            for other in self._pods.list()
            if node and get_str(other, "spec", "nodeName") == node
        )

    def _snapshot(self, pod: JsonObject) -> snapshots.Snapshot:
        # Room that was made for others is theirs, unless the pod is more important.
        kept = {
            uid: node
            for uid, (node, importance) in self._nominated.items()
            if uid != meta.uid(pod) and importance >= priority(pod)
        }
        self._placed.turn_page()
        return snapshots.take(
            self._nodes.list(),
            self._pods.list(),
            assumed=kept | self._assumed,
            namespaces=self._namespaces.list(),
            volumes=snapshots.Volumes(
                self._claims.get,
                lambda name: self._volumes.get(None, name),
                lambda name: self._classes.get(None, name),
                self._volumes.list,
                lambda name: self._csi_nodes.get(None, name),
                lambda name: self._csi_drivers.get(None, name),
                self._capacities.list,
                self._attachments.list,
            ),
            read=self._placed.read,
        )

    async def _bind(self, key: Key, pod: JsonObject, placement: Placement) -> None:
        try:
            await self._bind_volumes(pod, placement)
            await self._client.create(
                PODS,
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": key[1], "namespace": key[0], "uid": meta.uid(pod)},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node},
                },
                subresource="binding",
                name=key[1],
            )
        except (StatusError, ConnectionFailed, VolumesNotBound) as error:
            self._assumed.pop(meta.uid(pod), None)
            if isinstance(error, StatusError) and error.code == 404:
                self._queue.remove(key)
                return
            logger.warning("binding %s/%s to %s failed, trying again: %s", *key, placement.node, error)
            self._queue.retry(key, asyncio.get_running_loop().time())
            self._changed.set()
            self._recorder.event(pod, "Warning", "FailedScheduling", f"binding rejected: {error}")
            return
        logger.info("%s/%s goes to %s", *key, placement.node)
        self._queue.remove(key)
        message = f"Successfully assigned {key[0]}/{key[1]} to {placement.node}"
        self._recorder.event(pod, "Normal", "Scheduled", message)

    async def _bind_volumes(self, pod: JsonObject, placement: Placement) -> None:
        binding = placement.binding
        for claim, volume in binding.bind:
            await self._reserve(claim, volume)
        for claim in binding.provision:
            await self._client.patch(
                PERSISTENT_VOLUME_CLAIMS,
                meta.name(claim),
                {"metadata": {"annotations": {SELECTED_NODE: placement.node}}},
                meta.namespace(claim),
                type="merge",
            )
        names = [meta.name(claim) for claim, _ in binding.bind] + [meta.name(c) for c in binding.provision]
        if not names:
            return
        provisioned = {meta.name(claim) for claim in binding.provision}
        try:
            async with asyncio.timeout(VOLUME_SECONDS):
                while True:
                    changed = self._claims_changed
                    if all(self._is_bound(pod, name, placement.node, provisioned) for name in names):
                        return
                    await changed.wait()
        except TimeoutError as error:
            raise VolumesNotBound("timed out waiting for the condition") from error

    async def _reserve(self, claim: JsonObject, volume: JsonObject) -> None:
        """Set the volume's claimRef to the claim; the volume controller completes the binding."""
        await self._client.update(PERSISTENT_VOLUMES, bound_volume(volume, claim))

    def _is_bound(self, pod: JsonObject, name: str, node: str, provisioned: set[str]) -> bool:
        if self._pods.get(meta.namespace(pod), meta.name(pod)) is None:
            raise VolumesNotBound("the pod was deleted")
        claim = self._claims.get(meta.namespace(pod), name)
        if claim is None:
            raise VolumesNotBound(f'persistentvolumeclaim "{name}" not found')
        if is_bound(claim):
            return True
        selected = meta.annotations(claim).get(SELECTED_NODE)
        if name in provisioned and selected is not None and selected != node:
            raise VolumesNotBound(f'the provisioner of claim "{name}" rejected the selected node')
        return False

    async def _make_room(self, pod: JsonObject, preemption: Preemption) -> None:
        """Delete the victims; the pod is scheduled again when they are gone."""
        for victim in preemption.victims:
            if meta.is_being_deleted(victim):
                continue
            message = f"Preempted by pod {meta.uid(pod)} on node {preemption.node}"
            self._recorder.event(victim, "Normal", "Preempted", message)
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": f"{NAME}: preempting to accommodate a higher priority pod",
                "lastTransitionTime": now_rfc3339(),
            }
            namespace, name = meta.key(victim)
            try:
                await self._client.patch(
                    PODS,
                    name,
                    {"status": {"conditions": [condition]}},
                    namespace,
                    type="strategic",
                    subresource="status",
                )
                await self._client.delete(PODS, name, namespace, uid=meta.uid(victim))
            except (StatusError, ConnectionFailed) as error:
                text = "deleting pod %s/%s for %s/%s of higher priority failed, trying again with that: %s"
                logger.warning(text, namespace, name, *meta.key(pod), error)

    async def _report_failure(self, pod: JsonObject, message: str) -> None:
        current = meta.get_condition(pod, "PodScheduled")
        node = self._nominated.get(meta.uid(pod), ("", 0))[0]
        told = get_str(pod, "status", "nominatedNodeName")
        known = current and (current.get("reason"), current.get("message"), told)
        if known == ("Unschedulable", message, node):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": now_rfc3339(),
        }
        if current is not None and current.get("status") == "False":
            condition["lastTransitionTime"] = current.get("lastTransitionTime", now_rfc3339())
        patch = {"status": {"conditions": [condition], "nominatedNodeName": node or None}}
        try:
            await self._client.patch(
                PODS, meta.name(pod), patch, meta.namespace(pod), type="strategic", subresource="status"
            )
        except (StatusError, ConnectionFailed) as error:
            logger.debug("condition of %s was not written: %s", meta.name(pod), error)

    def _pod_changed(self, event: EventType, old: JsonObject | None, pod: JsonObject) -> None:
        key = key_of(pod)
        if event == "DELETED" or not needs_node(pod):
            self._queue.remove(key)
            self._nominated.pop(meta.uid(pod), None)
            if event == "DELETED" or get_str(pod, "spec", "nodeName"):
                self._assumed.pop(meta.uid(pod), None)
            self._anything_changed(event, old, pod)
        elif old is None or _scheduling_view(old) != _scheduling_view(pod):
            now = asyncio.get_running_loop().time()
            if old is None and (node := get_str(pod, "status", "nominatedNodeName")):
                self._nominated[meta.uid(pod)] = (node, priority(pod))  # kept by a scheduler before
            self._queue.add(key, get_int(pod, "spec", "priority"), now)
            self._changed.set()

    def _node_changed(self, event: EventType, old: JsonObject | None, node: JsonObject) -> None:
        # Heartbeats make no pod schedulable.
        if old is None or _node_view(old) != _node_view(node):
            self._anything_changed(event, old, node)

    def _claim_changed(self, _event: EventType, old: JsonObject | None, claim: JsonObject) -> None:
        # Pods already waiting wait on the old event; pods that come later wait on the new one.
        changed, self._claims_changed = self._claims_changed, asyncio.Event()
        changed.set()
        if old is not None and not is_bound(old) and is_bound(claim):
            self._claim_bound(claim)

    def _claim_bound(self, claim: JsonObject) -> None:
        """Pods that a claim kept waiting need not wait on: it is bound once, so nobody spins."""
        for key in self._queue.waiting():
            pod = self._pods.get(*key) if key[0] == meta.namespace(claim) else None
            if pod is not None and meta.name(claim) in volume_rules.claim_names(pod):
                self._queue.hasten(key)

    def _anything_changed(self, _event: EventType, _old: JsonObject | None, _new: JsonObject) -> None:
        self._queue.wake()
        self._changed.set()


def _scheduling_view(pod: JsonObject) -> tuple[object, ...]:
    return meta.labels(pod), get_object(pod, "spec")


def _node_view(node: JsonObject) -> tuple[object, ...]:
    return meta.labels(node), get_object(node, "spec"), get_object(node, "status", "allocatable")
