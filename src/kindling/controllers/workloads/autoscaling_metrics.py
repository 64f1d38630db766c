"""How many replicas the use of resources asks for; pure.

The rules are those of Kubernetes' HorizontalPodAutoscaler: pods that start, or of which nothing is known, do
not make the number of replicas swing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.durations import seconds_of
from kubecore.objects.quantity import Quantity
from kubecore.objects.times import parse_time

_TOLERANCE = 0.1
"""Use that differs from the target by less changes nothing."""
_STARTING = timedelta(minutes=5)
"""So long after its start, what a pod's processors did before it was ready says nothing."""
_READINESS_DELAY = timedelta(seconds=30)
"""A pod that became unready so shortly after its start has never been ready."""


class NoValue(Exception):
    """A metric gives no number of replicas; the text says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a pod used, in thousandths, at the end of a time that was measured."""

    amount: int
    moment: datetime
    window: timedelta


@dataclass(frozen=True, slots=True)
class Proposal:
    """The replicas that one metric asks for; `status` is its entry in the autoscaler's status."""

    replicas: int
    metric: str
    status: JsonObject


@dataclass(frozen=True, slots=True)
class _Groups:
    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


def samples_of(listed: Sequence[JsonObject], resource: str, container: str) -> dict[str, Sample]:
    """The use of `resource` by pod, of one container where it is named, from PodMetrics."""
    found = {}
    for item in listed:
        parts = [each for each in get_list(item, "containers") if container in ("", get_str(each, "name"))]
        amounts = [get_object(each, "usage").get(resource) for each in parts]
        if parts and all(amount is not None for amount in amounts):
            total = sum(Quantity.parse(amount).milli_value for amount in amounts if amount is not None)
            window = timedelta(seconds=seconds_of(get_str(item, "window") or "0s"))
            found[meta.name(item)] = Sample(total, parse_time(get_str(item, "timestamp")), window)
    return found


def proposal(
    metric: JsonObject, current: int, pods: Sequence[JsonObject], samples: Mapping[str, Sample], now: datetime
) -> Proposal:
    """What a metric of the type Resource or ContainerResource asks for. Raises NoValue."""
    kind = get_str(metric, "type")
    source = get_object(metric, f"{kind[0].lower()}{kind[1:]}")
    resource, container = get_str(source, "name"), get_str(source, "container")
    target = get_object(source, "target")
    groups = _groups(pods, samples, resource, now)
    left = {pod: sample.amount for pod, sample in samples.items() if pod in _counted(groups, pods)}
    if not left:
        raise NoValue("did not receive metrics for targeted pods (pods might be unready)")
    shown: JsonObject = {"averageValue": str(Quantity.of_milli(sum(left.values()) // len(left)))}
    name = f"{resource} container resource" if container else f"{resource} resource"
    if target.get("averageValue") is not None:
        wanted = Quantity.parse(target["averageValue"]).milli_value
        needs = dict.fromkeys((meta.name(pod) for pod in pods), wanted)
        replicas = _replicas(left, needs, 100, groups, current)
    else:
        needs = {meta.name(pod): _request(pod, resource, container) for pod in pods}
        utilization = int(target.get("averageUtilization") or 0)
        replicas = _replicas(left, needs, utilization, groups, current)
        shown["averageUtilization"] = _percentage(left, needs)
        name += " utilization (percentage of request)"
    status: JsonObject = {"name": resource, "current": shown}
    if container:
        status["container"] = container
    return Proposal(replicas, name, {"type": kind, f"{kind[0].lower()}{kind[1:]}": status})


def _replicas(
    left: Mapping[str, int], needs: Mapping[str, int], target: int, groups: _Groups, current: int
) -> int:
    """The replicas at which pods use `target` percent of what they need."""
    ratio = _percentage(left, needs) / target
    grows_despite_unready = bool(groups.unready) and ratio > 1
    if not grows_despite_unready and not groups.missing:
        return current if abs(1 - ratio) <= _TOLERANCE else math.ceil(ratio * groups.ready)
    assumed = dict(left)
    for pod in groups.missing:
        # Of a pod that says nothing, what would change least is assumed.
        assumed[pod] = needs[pod] * max(100, target) // 100 if ratio < 1 else 0
    if grows_despite_unready:
        assumed |= dict.fromkeys(groups.unready, 0)
    again = _percentage(assumed, needs) / target
    turns = (ratio < 1 < again) or (ratio > 1 > again)
    if abs(1 - again) <= _TOLERANCE or turns:
        return current
    replicas = math.ceil(again * len(assumed))
    goes_back = (again < 1 and replicas > current) or (again > 1 and replicas < current)
    return current if goes_back else replicas


def _percentage(used: Mapping[str, int], needs: Mapping[str, int]) -> int:
    total = sum(needs[pod] for pod in used)
    if total == 0:
        raise NoValue("no metrics returned matched known pods")
    return sum(used.values()) * 100 // total


def _request(pod: JsonObject, resource: str, container: str) -> int:
    """What the pod requests, in thousandths. Raises NoValue."""
    total = 0
    for each in get_list(pod, "spec", "containers"):
        name = get_str(each, "name")
        if container not in ("", name):
            continue
        amount = get_object(each, "resources", "requests").get(resource)
        if amount is None:
            raise NoValue(f"missing request for {resource} in container {name} of Pod {meta.name(pod)}")
        total += Quantity.parse(amount).milli_value
    return total


def _counted(groups: _Groups, pods: Sequence[JsonObject]) -> frozenset[str]:
    return frozenset(meta.name(pod) for pod in pods) - groups.unready - groups.ignored


def _groups(
    pods: Sequence[JsonObject], samples: Mapping[str, Sample], resource: str, now: datetime
) -> _Groups:
    unready, missing, ignored = set(), set(), set()
    for pod in pods:
        name, phase = meta.name(pod), get_str(pod, "status", "phase")
        if meta.is_being_deleted(pod) or phase == "Failed":
            ignored.add(name)
        elif phase == "Pending":
            unready.add(name)
        elif name not in samples:
            missing.add(name)
        elif resource == "cpu" and _is_unready(pod, samples[name], now):
            unready.add(name)
    ready = len(pods) - len(unready) - len(missing) - len(ignored)
    return _Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_unready(pod: JsonObject, sample: Sample, now: datetime) -> bool:
    """Whether what the pod's processors did says nothing of what it does once it serves."""
    condition, started = meta.get_condition(pod, "Ready"), get_str(pod, "status", "startTime")
    if condition is None or not started:
        return True
    start, is_ready = parse_time(started), condition.get("status") == "True"
    changed = parse_time(get_str(condition, "lastTransitionTime") or started)
    if start + _STARTING > now:
        return not is_ready or sample.moment < changed + sample.window
    return not is_ready and start + _READINESS_DELAY > changed
