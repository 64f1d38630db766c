"""HorizontalPodAutoscalers: as many replicas as the use of processors and memory asks for.

Metrics of resources come from metrics.k8s.io, the scale of whatever scales from its subresource: Deployments
as well as pools of virtual machines. There is no server of other metrics, and autoscalers that want them say
so. What was asked for lately is remembered by the process; after a restart it is learned anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kindling.controllers.environment import Environment
from kindling.controllers.workloads.autoscaling_limits import History, Words, decide
from kindling.controllers.workloads.autoscaling_metrics import NoValue, Proposal, proposal, samples_of
from kubecore.client import ConnectionFailed, discover
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.selectors import parse_label_selector
from kubecore.objects.times import format_time
from kubecore.resources import HORIZONTAL_POD_AUTOSCALERS, PODS, ResourceType
from kubecore.runtime import DONE, Key, RequeueAfter, Result

NAME = "horizontal-pod-autoscaler"
SYNC_SECONDS = 15.0
_CHANGED_SECONDS = 1.0
"""An autoscaler that changes all the time is looked at no more often: each look is remembered for an hour."""
_POD_METRICS = ResourceType("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
_UNSERVED = {
    "Pods": "custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
    "Object": "custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered",
    "External": "external metrics API: no external metrics API (external.metrics.k8s.io) registered",
}
"""Metrics that nobody serves here."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What is scaled: its resource and its scale."""

    resource: ResourceType
    scale: JsonObject

    @property
    def replicas(self) -> int:
        return get_int(self.scale, "spec", "replicas")

    @property
    def selector(self) -> str:
        return get_str(self.scale, "status", "selector")


@dataclass(frozen=True, slots=True)
class _Look:
    """When an autoscaler was looked at last, and what it said then."""

    moment: datetime
    spec: JsonObject


class _Unscalable(Exception):
    """There is no such thing to scale; the text says why."""


class AutoscalerController:
    """Keyed by autoscaler."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        self._autoscalers = environment.manager.informer(HORIZONTAL_POD_AUTOSCALERS)
        self._pods = environment.manager.informer(PODS)
        self._histories: dict[Key, History] = {}
        self._looks: dict[Key, _Look] = {}
        self._kinds: dict[tuple[str, str], ResourceType] = {}
        self._discovered: datetime | None = None
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._autoscalers)
        controller.depend(self._pods)

    async def reconcile(self, key: Key) -> Result:
        """Scale the target of one autoscaler, and tell what was found.

        Raises StatusError, ConnectionFailed.
        """
        autoscaler = self._autoscalers.get(*key)
        if autoscaler is None or meta.is_being_deleted(autoscaler):
            self._histories.pop(key, None)
            self._looks.pop(key, None)
            return DONE
        now, spec, last = self._environment.clock(), get_object(autoscaler, "spec"), self._looks.get(key)
        # What a look writes is no reason to look again; a user's changes are, but not each of many.
        if last is not None:
            pause = SYNC_SECONDS if last.spec == spec else _CHANGED_SECONDS
            remaining = pause - (now - last.moment).total_seconds()
            if remaining > 0:
                return RequeueAfter(remaining)
        status = deep_copy(get_object(autoscaler, "status"))
        status["conditions"] = list(status.get("conditions") or [])
        await self._look(key, autoscaler, status)
        if status != get_object(autoscaler, "status"):
            await self._client.update(HORIZONTAL_POD_AUTOSCALERS, {**autoscaler, "status": status}, "status")
        self._looks[key] = _Look(now, spec)
        return RequeueAfter(SYNC_SECONDS)

    async def _look(self, key: Key, autoscaler: JsonObject, status: JsonObject) -> None:
        try:
            target = await self._target(autoscaler)
        except _Unscalable as error:
            self._recorder.event(autoscaler, "Warning", "FailedGetScale", str(error))
            text = f"the HPA controller was unable to get the target's current scale: {error}"
            self._say(status, "AbleToScale", Words("False", "FailedGetScale", text))
            return
        text = "the HPA controller was able to get the target's current scale"
        self._say(status, "AbleToScale", Words("True", "SucceededGetScale", text))
        spec, current = get_object(autoscaler, "spec"), target.replicas
        low, high = get_int(spec, "minReplicas", default=1), get_int(spec, "maxReplicas")
        status["currentReplicas"] = current
        if current == 0 and low != 0:
            status["desiredReplicas"] = 0
            text = "scaling is disabled since the replica count of the target is zero"
            self._say(status, "ScalingActive", Words("False", "ScalingDisabled", text))
        elif current > high:
            reason = "Current number of replicas above Spec.MaxReplicas"
            await self._rescale(key, autoscaler, target, status, high, reason)
        elif current < low:
            reason = "Current number of replicas below Spec.MinReplicas"
            await self._rescale(key, autoscaler, target, status, low, reason)
        else:
            await self._follow_metrics(key, autoscaler, target, status)

    async def _follow_metrics(
        self, key: Key, autoscaler: JsonObject, target: _Target, status: JsonObject
    ) -> None:
        best = await self._best(autoscaler, target, status)
        if best is None:
            return
        spec, history = get_object(autoscaler, "spec"), self._histories.get(key, History())
        decision = decide(best.replicas, target.replicas, spec, history, self._environment.clock())
        self._say(status, "AbleToScale", decision.able)
        self._say(status, "ScalingLimited", decision.limited)
        self._histories[key] = decision.history
        status["desiredReplicas"] = decision.replicas
        if decision.replicas > target.replicas:
            reason = f"{best.metric} above target"
            await self._rescale(key, autoscaler, target, status, decision.replicas, reason)
        elif decision.replicas < target.replicas:
            reason = "All metrics below target"
            await self._rescale(key, autoscaler, target, status, decision.replicas, reason)

    async def _best(self, autoscaler: JsonObject, target: _Target, status: JsonObject) -> Proposal | None:
        """What the metric says that asks for most; None where they say too little."""
        metrics = get_list(autoscaler, "spec", "metrics")
        try:
            selector = parse_label_selector(target.selector) if target.selector else None
        except ValueError as error:
            self._recorder.event(autoscaler, "Warning", "InvalidSelector", str(error))
            selector = None
        if selector is None:
            text = "the HPA target's scale is missing a selector"
            self._say(status, "ScalingActive", Words("False", "InvalidSelector", text))
            return None
        namespace = meta.namespace(autoscaler)
        pods = [pod for pod in self._pods.list(namespace) if selector.matches(meta.labels(pod))]
        used = await self._used(namespace, target)
        found: list[Proposal] = []
        failures: list[tuple[str, str]] = []
        for metric in metrics:
            try:
                found.append(self._proposal(metric, target, pods, used))
            except NoValue as error:
                failures.append((get_str(metric, "type"), str(error)))
            # There may be thousands: other controllers do not wait for them.
            await asyncio.sleep(0)
        best = max(found, key=lambda each: each.replicas, default=None)
        # While one metric is unknown, the others may add replicas, and take none away.
        if best is None or (failures and best.replicas < target.replicas):
            self._fail(autoscaler, status, failures, len(metrics))
            return None
        status["currentMetrics"] = [each.status for each in found]
        text = f"the HPA was able to successfully calculate a replica count from {best.metric}"
        self._say(status, "ScalingActive", Words("True", "ValidMetricFound", text))
        return best

    def _fail(
        self, autoscaler: JsonObject, status: JsonObject, failures: Sequence[tuple[str, str]], metrics: int
    ) -> None:
        for kind, text in failures:
            self._recorder.event(autoscaler, "Warning", f"FailedGet{kind}Metric", text)
        kind, text = failures[0]
        total = f"invalid metrics ({len(failures)} invalid out of {metrics}), first error is: {text}"
        self._recorder.event(autoscaler, "Warning", "FailedComputeMetricsReplicas", total)
        text = f"the HPA was unable to compute the replica count: {text}"
        self._say(status, "ScalingActive", Words("False", f"FailedGet{kind}Metric", text))

    async def _used(self, namespace: str, target: _Target) -> list[JsonObject] | NoValue:
        """The metrics of the target's pods, which all metrics of an autoscaler share."""
        try:
            listed = await self._client.list(_POD_METRICS, namespace, target.selector)
        except (StatusError, ConnectionFailed) as error:
            return NoValue(f"unable to fetch metrics from resource metrics API: {error}")
        return get_list(listed, "items")

    def _proposal(
        self,
        metric: JsonObject,
        target: _Target,
        pods: Sequence[JsonObject],
        used: Sequence[JsonObject] | NoValue,
    ) -> Proposal:
        """What one metric asks for. Raises NoValue."""
        kind = get_str(metric, "type")
        if kind in _UNSERVED:
            raise NoValue(f"unable to fetch metrics from {_UNSERVED[kind]}")
        source = get_object(metric, f"{kind[0].lower()}{kind[1:]}")
        resource = get_str(source, "name")
        failed = f"failed to get {resource} utilization"
        unknown = f"{failed}: unable to get metrics for resource {resource}"
        if isinstance(used, NoValue):
            raise NoValue(f"{unknown}: {used}") from used
        samples = samples_of(used, resource, get_str(source, "container"))
        if not samples:
            raise NoValue(f"{unknown}: no metrics returned from resource metrics API")
        try:
            return proposal(metric, target.replicas, pods, samples, self._environment.clock())
        except NoValue as error:
            raise NoValue(f"{failed}: {error}") from error

    async def _rescale(
        self,
        key: Key,
        autoscaler: JsonObject,
        target: _Target,
        status: JsonObject,
        replicas: int,
        reason: str,
    ) -> None:
        now, size = self._environment.clock(), f"New size: {replicas}; reason: {reason}"
        scale = {**target.scale, "spec": {**get_object(target.scale, "spec"), "replicas": replicas}}
        status["desiredReplicas"] = replicas
        try:
            await self._client.request(
                "PUT",
                target.resource.path(meta.namespace(autoscaler), meta.name(target.scale), "scale"),
                body=scale,
            )
        except StatusError as error:
            text = f"{size}; error: {error.message}"
            self._recorder.event(autoscaler, "Warning", "FailedRescale", text)
            text = f"the HPA controller was unable to update the target scale: {error.message}"
            self._say(status, "AbleToScale", Words("False", "FailedUpdateScale", text))
            return
        self._recorder.event(autoscaler, "Normal", "SuccessfulRescale", size)
        text = f"the HPA controller was able to update the target scale to {replicas}"
        self._say(status, "AbleToScale", Words("True", "SucceededRescale", text))
        self._histories[key] = self._histories.get(key, History()).changed(target.replicas, replicas, now)
        status["lastScaleTime"] = format_time(now)

    def _say(self, status: JsonObject, condition: str, words: Words) -> None:
        now = format_time(self._environment.clock())
        conditions: list[JsonObject] = status["conditions"]
        meta.set_condition(conditions, condition, words.status, words.reason, words.message, now=now)

    async def _target(self, autoscaler: JsonObject) -> _Target:
        """Raises _Unscalable."""
        reference = get_object(autoscaler, "spec", "scaleTargetRef")
        group = get_str(reference, "apiVersion").rpartition("/")[0]
        kind, name = get_str(reference, "kind"), get_str(reference, "name")
        now = self._environment.clock()
        is_old = self._discovered is None or (now - self._discovered).total_seconds() >= SYNC_SECONDS
        # Users name any kinds: each that there is not must not ask for all of the API.
        if (group, kind) not in self._kinds and is_old:
            found = await discover(self._client)
            self._discovered = now
            served = [each.resource for each in found.preferred()]
            self._kinds = {(each.group, each.kind): each for each in served}
        resource = self._kinds.get((group, kind))
        if resource is None:
            raise _Unscalable(f'no matches for kind "{kind}" in group "{group}"')
        if not resource.namespaced:
            # Whoever may write autoscalers of a namespace has no rights outside of it.
            raise _Unscalable("the server could not find the requested resource")
        try:
            scale = await self._client.get(resource, name, meta.namespace(autoscaler), "scale")
        except StatusError as error:
            raise _Unscalable(error.message) from error
        return _Target(resource, scale)
