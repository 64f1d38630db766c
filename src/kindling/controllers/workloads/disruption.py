"""The status of PodDisruptionBudgets: how many pods may be evicted now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kindling.controllers import pods as pod_facts
from kindling.controllers.environment import Environment
from kindling.controllers.workloads.rollout import scaled
from kubecore.client import discover
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_int, get_object
from kubecore.objects import meta
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.times import format_time, parse_time
from kubecore.resources import POD_DISRUPTION_BUDGETS, PODS, ResourceType
from kubecore.runtime import DONE, Key, RequeueAfter, Result

NAME = "disruption-controller"
DELETION_SECONDS = 120.0
"""An evicted pod that is still there after so long was not deleted after all."""


class NoScale(Exception):
    """An owner of the budget's pods has no scale subresource."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pods are expected, and how many must be healthy."""

    expected: int
    desired_healthy: int


def counts(budget: JsonObject, pods: Sequence[JsonObject], expected: Callable[[], int]) -> Counts:
    """The numbers of a budget. `expected` gives the sum of the owners' replicas where it is needed."""
    spec = get_object(budget, "spec")
    if spec.get("maxUnavailable") is not None:
        total = expected()
        unavailable = scaled(spec["maxUnavailable"], total, round_up=True)
        return Counts(total, max(0, total - unavailable))
    minimum = spec.get("minAvailable")
    if isinstance(minimum, int):
        return Counts(len(pods), minimum)
    if isinstance(minimum, str):
        total = expected()
        return Counts(total, scaled(minimum, total, round_up=True))
    return Counts(len(pods), 0)


def needs_expected(budget: JsonObject) -> bool:
    """Whether the budget depends on the number of replicas that the owners want."""
    spec = get_object(budget, "spec")
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def disrupted(budget: JsonObject, pods: Sequence[JsonObject], now: datetime) -> dict[str, str]:
    """Pods whose eviction was allowed and that are not deleted yet."""
    present = {meta.name(pod): pod for pod in pods}
    result = {}
    for name, moment in get_object(budget, "status", "disruptedPods").items():
        pod = present.get(name)
        if pod is None or meta.is_being_deleted(pod):
            continue
        if parse_time(moment) + timedelta(seconds=DELETION_SECONDS) > now:
            result[name] = moment
    return result


def status(budget: JsonObject, pods: Sequence[JsonObject], numbers: Counts, now: datetime) -> JsonObject:
    """The status of the budget."""
    going = disrupted(budget, pods, now)
    healthy = sum(
        pod_facts.is_ready(pod) and not meta.is_being_deleted(pod) and meta.name(pod) not in going
        for pod in pods
    )
    allowed = healthy - numbers.desired_healthy
    if numbers.expected <= 0 or allowed <= 0:
        allowed = 0
    return _status(budget, going, (allowed, healthy, numbers.desired_healthy, numbers.expected), now)


def _status(
    budget: JsonObject, going: dict[str, str], numbers: tuple[int, int, int, int], now: datetime
) -> JsonObject:
    allowed, healthy, desired, expected = numbers
    conditions = deep_copy({"list": meta.conditions(budget)})["list"]
    reason = "SufficientPods" if allowed else "InsufficientPods"
    _set_condition(budget, conditions, "True" if allowed else "False", reason, "", now)
    result: JsonObject = {
        "observedGeneration": meta.generation(budget),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": conditions,
    }
    if going:
        result["disruptedPods"] = going
    return result


def failed_status(budget: JsonObject, message: str, now: datetime) -> JsonObject:
    """The status when the scale of the pods is unknown: no pod may be evicted."""
    conditions = deep_copy({"list": meta.conditions(budget)})["list"]
    _set_condition(budget, conditions, "False", "SyncFailed", message, now)
    return {
        **get_object(budget, "status"),
        "observedGeneration": meta.generation(budget),
        "disruptionsAllowed": 0,
        "conditions": conditions,
    }


def _set_condition(
    budget: JsonObject, conditions: list[JsonObject], value: str, reason: str, message: str, now: datetime
) -> None:
    meta.set_condition(
        conditions,
        "DisruptionAllowed",
        value,
        reason,
        message,
        observed_generation=meta.generation(budget),
        now=format_time(now),
    )
    # The conditions of this kind always have the field message, even if empty.
    for condition in conditions:
        condition.setdefault("message", "")


class DisruptionController:
    """Keyed by budget."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        self._budgets = environment.manager.informer(POD_DISRUPTION_BUDGETS)
        self._pods = environment.manager.informer(PODS)
        self._kinds: dict[tuple[str, str], ResourceType] = {}
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._budgets)
        controller.watch(self._pods, self._budgets_of)

    def _budgets_of(self, pod: JsonObject) -> list[Key]:
        return [
            meta.key(budget) for budget in self._budgets.list(meta.namespace(pod)) if _selects(budget, pod)
        ]

    async def reconcile(self, key: Key) -> Result:
        """Update the status of one budget."""
        budget = self._budgets.get(*key)
        if budget is None:
            return DONE
        pods = [
            pod for pod in self._pods.list(key[0]) if _selects(budget, pod) and not pod_facts.is_finished(pod)
        ]
        now = self._environment.clock()
        try:
            expected = await self._expected(pods) if needs_expected(budget) else 0
        except NoScale as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._recorder.event(budget, "Warning", "CalculateExpectedPodCountFailed", message)
            wanted = failed_status(budget, str(error), now)
        else:
            wanted = status(budget, pods, counts(budget, pods, lambda: expected), now)
        if wanted != get_object(budget, "status"):
            await self._client.update(POD_DISRUPTION_BUDGETS, {**budget, "status": wanted}, "status")
        return RequeueAfter(DELETION_SECONDS) if wanted.get("disruptedPods") else DONE

    async def _expected(self, pods: Sequence[JsonObject]) -> int:
        """The sum of the replicas of all owners of the pods. Raises NoScale."""
        owners: dict[str, int] = {}
        for pod in pods:
            reference = meta.controller_of(pod)
            if reference is None:
                raise NoScale(f'found no controller ref for pod "{meta.name(pod)}"')
            if reference["uid"] not in owners:
                owners[reference["uid"]] = await self._replicas(meta.namespace(pod), reference, pod)
        return sum(owners.values())

    async def _replicas(self, namespace: str, reference: JsonObject, pod: JsonObject) -> int:
        """For the ReplicaSet of a Deployment, the Deployment's replicas count; other kinds are asked through
        their scale subresource.
        """
        group = reference["apiVersion"].rpartition("/")[0]
        resource = await self._resource(group, reference["kind"])
        if resource is None:
            raise NoScale(f"{reference['kind']}.{group} does not implement the scale subresource")
        try:
            owner = await self._client.get(resource, reference["name"], namespace)
            parent = meta.controller_of(owner)
            if parent is not None and reference["kind"] == "ReplicaSet":
                return await self._replicas(namespace, parent, pod)
            scale = await self._client.get(resource, reference["name"], namespace, "scale")
        except StatusError as error:
            if error.code == 404:
                message = f"{resource.group_resource} does not implement the scale subresource"
                raise NoScale(message) from error
            raise
        return get_int(scale, "spec", "replicas")

    async def _resource(self, group: str, kind: str) -> ResourceType | None:
        if (group, kind) not in self._kinds:
            found = await discover(self._client)
            self._kinds = {
                (served.resource.group, served.resource.kind): served.resource for served in found.preferred()
            }
        return self._kinds.get((group, kind))


def _selects(budget: JsonObject, pod: JsonObject) -> bool:
    selector = get_object(budget, "spec").get("selector")
    return from_label_selector_object(selector).matches(meta.labels(pod))
