"""Pod garbage collection: pods of deleted nodes, terminating unscheduled ones, too many terminated ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import NODES, PODS
from kubecore.runtime import Key, RequeueAfter, Result

logger = logging.getLogger(__name__)

NAME = "pod-garbage-collector"
PERIOD_SECONDS = 20.0
QUARANTINE_SECONDS = 40.0
"""A node must be missing for so long before its pods are removed: it may be about to register anew."""
FINISHED_MAXIMUM = 12500
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def orphaned(pods: Sequence[JsonObject], nodes: Collection[str]) -> list[JsonObject]:
    """Pods that are bound to nodes that do not exist."""
    return [
        pod
        for pod in pods
        if get_str(pod, "spec", "nodeName") and get_str(pod, "spec", "nodeName") not in nodes
    ]


def excess_finished(pods: Sequence[JsonObject], maximum: int = FINISHED_MAXIMUM) -> list[JsonObject]:
    """The oldest terminated pods beyond the maximum."""
    finished = sorted((pod for pod in pods if pod_facts.is_finished(pod)), key=meta.creation_timestamp)
    return finished[: max(0, len(finished) - maximum)]


def never_placed(pods: Sequence[JsonObject]) -> list[JsonObject]:
    """Terminating pods that were never scheduled: no kubelet confirms their deletion."""
    return [pod for pod in pods if meta.is_being_deleted(pod) and not get_str(pod, "spec", "nodeName")]


def out_of_service(pods: Sequence[JsonObject], nodes: Sequence[JsonObject]) -> list[JsonObject]:
    """Terminating pods on nodes with the out-of-service taint."""
    dead = {
        meta.name(node)
        for node in nodes
        if any(taint.get("key") == OUT_OF_SERVICE for taint in get_list(node, "spec", "taints"))
        and not meta.is_condition_true(node, "Ready")
    }
    return [pod for pod in pods if meta.is_being_deleted(pod) and get_str(pod, "spec", "nodeName") in dead]


class PodGarbageCollector:
    """Checks all pods every twenty seconds; it has one key for the whole cluster."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._nodes = environment.manager.informer(NODES)
        self._pods = environment.manager.informer(PODS)
        self._missing_since: dict[str, float] = {}
        controller = environment.controller(NAME, self.reconcile, workers=1)
        controller.depend(self._nodes)
        controller.depend(self._pods)
        controller.watch(self._nodes, lambda _: [("", "cluster")], lambda event, _, __: event == "DELETED")
        controller.enqueue(("", "cluster"))

    async def reconcile(self, _key: Key) -> Result:
        """Check all pods once."""
        pods, nodes = self._pods.list(), self._nodes.list()
        for pod in orphaned(pods, {meta.name(node) for node in nodes}):
            if await self._is_gone(get_str(pod, "spec", "nodeName")):
                await self._remove(pod, "PodGC: node no longer exists")
        known = {meta.name(node) for node in nodes}
        self._missing_since = {
            name: since for name, since in self._missing_since.items() if name not in known
        }
        for pod in out_of_service(pods, nodes):
            await self._remove(pod)
        for pod in (*never_placed(pods), *excess_finished(pods)):
            await self._remove(pod)
        return RequeueAfter(PERIOD_SECONDS)

    async def _is_gone(self, name: str) -> bool:
        now = self._environment.clock().timestamp()
        since = self._missing_since.setdefault(name, now)
        if now - since < QUARANTINE_SECONDS:
            return False
        try:
            await self._client.get(NODES, name)
        except StatusError as error:
            if error.code == 404:
                return True
            raise
        return False

    async def _remove(self, pod: JsonObject, disruption: str = "") -> None:
        logger.info("deleting pod %s/%s without waiting for its node", meta.namespace(pod), meta.name(pod))
        with ignoring(404, 409):
            if not pod_facts.is_finished(pod):
                updated = deep_copy(pod)
                status = updated.setdefault("status", {})
                status["phase"] = "Failed"
                if disruption:
                    meta.set_condition(
                        status.setdefault("conditions", []),
                        "DisruptionTarget",
                        True,
                        "DeletionByPodGC",
                        disruption,
                    )
                await self._client.update(PODS, updated, "status")
            await self._client.delete(
                PODS, meta.name(pod), meta.namespace(pod), grace_period_seconds=0, uid=meta.uid(pod)
            )
