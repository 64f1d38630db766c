"""Replicas of a pod template: what ReplicaSet and ReplicationController have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment, own_selector, owned, soonest
from kindling.controllers.workloads.adoption import Claimer
from kindling.controllers.workloads.pod_writes import PodWrites, all_of
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_int, get_object
from kubecore.objects import meta
from kubecore.objects.selectors import LabelSelector, label_selector_of_map
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, ResourceType
from kubecore.runtime import DONE, Key, Result

logger = logging.getLogger(__name__)

BURST = 500
"""At most so many pods are created or deleted in one round."""

NODE_INDEX = "node"


def by_node(pod: JsonObject) -> list[str]:
    """The index function of `NODE_INDEX`."""
    node = get_object(pod, "spec").get("nodeName")
    return [node] if node else []


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of pods to create, and the pods to delete."""

    create: int = 0
    delete: tuple[JsonObject, ...] = ()


def plan(replicas: int, active: list[JsonObject], rank: Callable[[JsonObject], tuple[object, ...]]) -> Plan:
    """What to create and delete so that `replicas` of the `active` pods exist."""
    missing = replicas - len(active)
    if missing > 0:
        return Plan(create=min(missing, BURST))
    excess = min(-missing, BURST)
    return Plan(delete=tuple(sorted(active, key=rank)[:excess]))


def status(
    owner: JsonObject,
    selected: list[JsonObject],
    terminating: int | None,
    now: datetime,
    failure: tuple[str, str] | None,
) -> JsonObject:
    """The status of a set with the active pods `selected`.

    `terminating` is None for kinds that do not count terminating pods; `failure` is the reason and message of
    this sync's failure.
    """
    template_labels = get_object(owner, "spec", "template", "metadata", "labels")
    min_ready = get_int(owner, "spec", "minReadySeconds")
    labelled = [pod for pod in selected if template_labels.items() <= meta.labels(pod).items()]
    ready = [pod for pod in selected if pod_facts.is_ready(pod)]
    available = [pod for pod in ready if pod_facts.is_available(pod, min_ready, now)]
    result: JsonObject = {"replicas": len(selected)}
    for name, found in (
        ("fullyLabeledReplicas", labelled),
        ("readyReplicas", ready),
        ("availableReplicas", available),
    ):
        if found:
            result[name] = len(found)
    if terminating is not None:
        result["terminatingReplicas"] = terminating
    result["observedGeneration"] = meta.generation(owner)
    conditions = deep_copy({"conditions": meta.conditions(owner)})["conditions"]
    if failure is None:
        meta.remove_condition(conditions, "ReplicaFailure")
    elif meta.find_condition(conditions, "ReplicaFailure") is None:
        conditions.append(
            {
                "type": "ReplicaFailure",
                "status": "True",
                "lastTransitionTime": now_rfc3339(),
                "reason": failure[0],
                "message": failure[1],
            }
        )
    if conditions:
        result["conditions"] = conditions
    return result


class ReplicaController:
    """Keeps the number of pods of each object of one kind."""

    def __init__(
        self,
        environment: Environment,
        name: str,
        resource: ResourceType,
        selector_of: Callable[[JsonObject], LabelSelector],
        *,
        counts_terminating: bool,
    ) -> None:
        self._environment = environment
        self._client = environment.client
        self._resource = resource
        self._selector_of = selector_of
        self._counts_terminating = counts_terminating
        self._owners = environment.manager.informer(resource)
        pods = environment.manager.informer(PODS, indexers={NODE_INDEX: by_node})
        self._claimer = Claimer(self._client, resource, PODS)
        controller = environment.controller(name, self.reconcile, workers=5)
        controller.watch(self._owners)
        self._pods = owned(
            controller,
            pods,
            self._owners,
            resource.kind,
            selector_of,
        )
        self._writes = PodWrites(self._client, environment.recorder(name), self._pods.expectations)

    async def reconcile(self, key: Key) -> Result:
        """Sync the pods and the status of one set."""
        owner = self._owners.get(*key)
        if owner is None:
            self._pods.expectations.forget(key)
            return DONE
        may_act = await self._pods.expectations.settled(
            key
        )  # observe the expectations before reading the caches
        selector = self._selector_of(owner)
        candidates = self._pods.of(owner) + self._pods.orphans(key[0])
        claimed = await self._claimer.claim(
            owner, selector, (pod for pod in candidates if not pod_facts.is_finished(pod))
        )
        active = [pod for pod in claimed if pod_facts.is_active(pod)]
        failure: tuple[str, str] | None = None
        error: StatusError | None = None
        if may_act and not meta.is_being_deleted(owner):
            failure, error = await self._act(key, owner, active)
        terminating = sum(meta.is_being_deleted(pod) for pod in claimed) if self._counts_terminating else None
        now = self._environment.clock()
        await self._write_status(owner, status(owner, active, terminating, now, failure))
        if error is not None:
            raise error
        return self._next_look(owner, active, now)

    async def _act(
        self, key: Key, owner: JsonObject, active: list[JsonObject]
    ) -> tuple[tuple[str, str] | None, StatusError | None]:
        now = self._environment.clock()
        replicas = get_int(owner, "spec", "replicas", default=1)
        chosen = plan(
            replicas,
            active,
            lambda pod: pod_facts.deletion_rank(pod, self._related_on_node(owner, pod, active), now),
        )
        try:
            if chosen.create:
                await self._create(key, owner, chosen.create)
            if chosen.delete:
                await self._delete(key, owner, chosen.delete)
        except StatusError as error:
            return ("FailedCreate" if chosen.create else "FailedDelete", error.message), error
        return None, None

    def _related_on_node(self, owner: JsonObject, pod: JsonObject, active: list[JsonObject]) -> int:
        node = get_object(pod, "spec").get("nodeName")
        return sum(get_object(other, "spec").get("nodeName") == node for other in active) if node else 0

    async def _create(self, key: Key, owner: JsonObject, count: int) -> None:
        """Create in batches of 1, 2, 4, …, so that an error which all would meet (such as an exceeded quota)
        costs one request.
        """
        left, batch = count, 1
        while left:
            size = min(batch, left)
            results = await asyncio.gather(
                *(self._create_one(key, owner) for _ in range(size)), return_exceptions=True
            )
            failures = [result for result in results if isinstance(result, BaseException)]
            if failures:
                raise failures[0]
            left -= size
            batch *= 2

    async def _create_one(self, key: Key, owner: JsonObject) -> None:
        template = get_object(owner, "spec", "template")
        await self._writes.create(key, owner, pod_facts.from_template(template, owner, self._resource))

    async def _delete(self, key: Key, owner: JsonObject, chosen: tuple[JsonObject, ...]) -> None:
        await all_of(self._writes.delete(key, owner, pod) for pod in chosen)

    async def _write_status(self, owner: JsonObject, wanted: JsonObject) -> None:
        current = get_object(owner, "status")
        if current == wanted:
            return
        with ignoring(404):
            await self._client.update(self._resource, {**owner, "status": wanted}, "status")

    def _next_look(self, owner: JsonObject, active: list[JsonObject], now: datetime) -> Result:
        min_ready = get_int(owner, "spec", "minReadySeconds")
        waits = [pod_facts.seconds_until_available(pod, min_ready, now) for pod in active]
        return soonest(waits)


def replica_sets(environment: Environment) -> None:
    """Add the controller of ReplicaSets."""
    ReplicaController(
        environment,
        "replicaset-controller",
        REPLICA_SETS,
        own_selector,
        counts_terminating=True,
    )


def replication_controllers(environment: Environment) -> None:
    """Add the controller of ReplicationControllers, whose selector is a map of labels."""
    ReplicaController(
        environment,
        "replication-controller",
        REPLICATION_CONTROLLERS,
        lambda owner: label_selector_of_map(get_object(owner, "spec", "selector")),
        counts_terminating=False,
    )
