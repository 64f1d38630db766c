"""Node lifecycle: conditions of unreachable nodes, taints from conditions, eviction of their pods.

A node is unreachable when neither its lease nor its status was renewed for 40 seconds of this process's
clock. Its conditions become Unknown, the taint ``unreachable`` is set, its pods are marked not ready, and
pods are evicted when the time for which they tolerate the taint has passed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kindling.controllers.environment import Environment
from kindling.scheduler import node_rules
from kubecore.errors import ignoring
from kubecore.json import JsonObject, deep_copy, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import format_time, parse_time
from kubecore.resources import LEASES, NODES, PODS
from kubecore.runtime import DONE, Key, RequeueAfter, Result

logger = logging.getLogger(__name__)

NAME = "node-controller"
GRACE_SECONDS = 40.0
STARTUP_GRACE_SECONDS = 60.0
PERIOD_SECONDS = 5.0
LEASE_NAMESPACE = "kube-node-lease"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_CONDITION_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_SILENT_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
NODE_INDEX = "node"


def silent_conditions(node: JsonObject, now: datetime) -> list[JsonObject]:
    """The conditions of an unreachable node."""
    moment = format_time(now)
    conditions = [dict(condition) for condition in meta.conditions(node)]
    for name in _SILENT_CONDITIONS:
        current = meta.find_condition(conditions, name)
        if current is None:
            conditions.append(
                {
                    "type": name,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": meta.creation_timestamp(node) or moment,
                    "lastTransitionTime": moment,
                }
            )
        elif current.get("status") != "Unknown":
            current.update(
                status="Unknown",
                reason="NodeStatusUnknown",
                message="Kubelet stopped posting node status.",
                lastTransitionTime=moment,
            )
    return conditions


def taints(node: JsonObject, now: datetime) -> list[JsonObject]:
    """The taints that the node should have: those of others, and those for its conditions and cordon."""
    ready = meta.get_condition(node, "Ready")
    current = get_list(node, "spec", "taints")
    wanted: list[tuple[str, str]] = []
    if ready is None:
        # The node has not reported yet: keep the taints that it was registered with.
        wanted += [(t["key"], t["effect"]) for t in current if t["key"] in (NOT_READY, UNREACHABLE)]
    elif ready.get("status") == "False":
        wanted += [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    elif ready.get("status") != "True":
        wanted += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    wanted += [
        (key, "NoSchedule") for name, key in _CONDITION_TAINTS.items() if meta.is_condition_true(node, name)
    ]
    if get_bool(node, "spec", "unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    managed = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_CONDITION_TAINTS.values()}
    kept = [
        taint for taint in current if taint["key"] not in managed or (taint["key"], taint["effect"]) in wanted
    ]
    present = {(taint["key"], taint["effect"]) for taint in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": format_time(now)}
        for key, effect in wanted
        if (key, effect) not in present
    ]
    return kept + added


def eviction_delay(pod: JsonObject, node_taints: Sequence[JsonObject], now: datetime) -> float | None:
    """Seconds until NoExecute taints evict the pod; None when it tolerates them for ever."""
    delays = []
    for taint in node_taints:
        if taint.get("effect") != "NoExecute":
            continue
        tolerations = [
            entry for entry in get_list(pod, "spec", "tolerations") if node_rules.tolerates(entry, taint)
        ]
        if not tolerations:
            return 0.0
        limits = [entry["tolerationSeconds"] for entry in tolerations if "tolerationSeconds" in entry]
        if len(limits) < len(tolerations) and not limits:
            continue
        since = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else now
        delays.append(max(0.0, min(limits) - (now - since).total_seconds()))
    return min(delays) if delays else None


@dataclass(slots=True)
class _Sign:
    """The last heartbeat: the renew times of lease and status, and when this process saw them."""

    seen: tuple[str, str]
    at: float


class NodeLifecycleController:
    """Keyed by node; pods are evicted by a controller of its own, keyed by pod."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        manager = environment.manager
        self._nodes = manager.informer(NODES)
        self._pods = manager.informer(PODS, indexers={NODE_INDEX: _node_of})
        self._leases = manager.informer(LEASES, namespace=LEASE_NAMESPACE)
        self._signs: dict[str, _Sign] = {}
        self._controller = environment.controller(NAME, self.reconcile)
        self._controller.watch(self._nodes)
        self._controller.depend(self._leases)
        self._evictor = environment.controller("taint-eviction-controller", self.evict)
        self._evictor.watch(self._pods, predicate=lambda event, _, pod: bool(_node_of(pod)))
        self._evictor.watch(self._nodes, self._pods_on)

    def _pods_on(self, node: JsonObject) -> list[Key]:
        return [meta.key(pod) for pod in self._pods.by_index(NODE_INDEX, meta.name(node))]

    async def reconcile(self, key: Key) -> Result:
        """Sync the conditions and taints of one node."""
        node = self._nodes.get(None, key[1])
        if node is None:
            self._signs.pop(key[1], None)
            return DONE
        if self._is_silent(node):
            node = await self._mark_silent(node)
        node = await self._taint(node)
        ready = meta.get_condition(node, "Ready")
        if ready is not None and ready.get("status") != "True":
            await self._mark_pods(node)
        return RequeueAfter(PERIOD_SECONDS)

    def _is_silent(self, node: JsonObject) -> bool:
        now = asyncio.get_running_loop().time()
        lease = self._leases.get(LEASE_NAMESPACE, meta.name(node))
        ready = meta.get_condition(node, "Ready") or {}
        seen = (
            get_str(lease, "spec", "renewTime") if lease else "",
            str(ready.get("lastHeartbeatTime", "")),
        )
        sign = self._signs.get(meta.name(node))
        if sign is None or sign.seen != seen:
            self._signs[meta.name(node)] = _Sign(seen, now)
            return False
        grace = GRACE_SECONDS if ready else STARTUP_GRACE_SECONDS
        return now - sign.at > grace

    async def _mark_silent(self, node: JsonObject) -> JsonObject:
        conditions = silent_conditions(node, self._environment.clock())
        if conditions == meta.conditions(node):
            return node
        name = meta.name(node)
        logger.warning(
            "node %s has not renewed its lease or status for %d seconds; its conditions become Unknown",
            name,
            GRACE_SECONDS,
        )
        message = f"Node {name} status is now: NodeNotReady"
        self._recorder.event(node, "Normal", "NodeNotReady", message)
        status = {**get_object(node, "status"), "conditions": conditions}
        return await self._client.update(NODES, {**node, "status": status}, "status")

    async def _taint(self, node: JsonObject) -> JsonObject:
        wanted = taints(node, self._environment.clock())
        if wanted == get_list(node, "spec", "taints"):
            return node
        patch = {
            "metadata": {"resourceVersion": meta.resource_version(node)},
            "spec": {"taints": wanted or None},
        }
        return await self._client.patch(NODES, meta.name(node), patch, type="merge")

    async def _mark_pods(self, node: JsonObject) -> None:
        """Mark the pods of an unready node as not ready, so that services leave them out."""
        for pod in self._pods.by_index(NODE_INDEX, meta.name(node)):
            ready = meta.get_condition(pod, "Ready")
            if ready is None or ready.get("status") != "True":
                continue
            updated = deep_copy(pod)
            condition = meta.find_condition(updated["status"]["conditions"], "Ready")
            if condition is not None:
                condition.update(status="False", lastTransitionTime=format_time(self._environment.clock()))
            with ignoring(404, 409):
                await self._client.update(PODS, updated, "status")

    async def evict(self, key: Key) -> Result:
        """Delete a pod whose toleration of a node's NoExecute taints has expired."""
        pod = self._pods.get(*key)
        node = self._nodes.get(None, _node_of(pod)[0]) if pod and _node_of(pod) else None
        if pod is None or node is None or meta.is_being_deleted(pod):
            return DONE
        delay = eviction_delay(pod, get_list(node, "spec", "taints"), self._environment.clock())
        if delay is None:
            return DONE
        if delay > 0:
            return RequeueAfter(delay + 0.1)
        message = f"Marking for deletion Pod {key[0]}/{key[1]}"
        self._recorder.event(pod, "Normal", "TaintManagerEviction", message)
        await self._disrupt(pod)
        with ignoring(404):
            await self._client.delete(PODS, key[1], key[0], uid=meta.uid(pod))
        return DONE

    async def _disrupt(self, pod: JsonObject) -> None:
        updated = deep_copy(pod)
        conditions = updated.setdefault("status", {}).setdefault("conditions", [])
        message = "Taint manager: deleting due to NoExecute taint"
        if meta.set_condition(conditions, "DisruptionTarget", True, "DeletionByTaintManager", message):
            with ignoring(404):
                await self._client.update(PODS, updated, "status")


def _node_of(pod: JsonObject) -> list[str]:
    name = get_str(pod, "spec", "nodeName")
    return [name] if name else []
