"""HorizontalPodAutoscalers of version 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.resources import resource_name_problems
from kindling.apiserver.kinds.machinery.checks import amount
from kindling.apiserver.kinds.machinery.fields import check_fields, must, named
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required

METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_FIELDS = {kind: kind[:1].lower() + kind[1:] for kind in METRIC_TYPES}
_SPEC = FieldPath("spec")
_POLICIES = ("Disabled", "Max", "Min")


def validate_autoscaler(obj: JsonObject) -> Iterator[FieldError]:
    """Bounds, target, metrics and behaviour."""
    spec = get_object(obj, "spec")
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        yield invalid(_SPEC.child("minReplicas"), least, "must be greater than or equal to 1")
    if not most:
        yield required(_SPEC.child("maxReplicas"), "must be set and greater than 0")
    elif most < 1:
        yield invalid(_SPEC.child("maxReplicas"), most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield invalid(_SPEC.child("maxReplicas"), most, "must be greater than or equal to `minReplicas`")
    yield from _validate_target(get_object(spec, "scaleTargetRef"), _SPEC.child("scaleTargetRef"))
    if not get_object(spec, "scaleTargetRef").get("apiVersion"):
        yield invalid(_SPEC.child("scaleTargetRef", "apiVersion"), "", "apiVersion must specify API group")
    metrics = get_list(spec, "metrics")
    for position, metric in enumerate(metrics):
        yield from _validate_metric(metric, _SPEC.child("metrics").index(position))
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden(_SPEC.child("metrics"), text)
    behavior = get_object(spec, "behavior")
    for field in ("scaleUp", "scaleDown"):
        if isinstance(behavior.get(field), dict):
            yield from _validate_rules(behavior[field], _SPEC.child("behavior", field))


def _validate_target(target: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    for field in ("kind", "name"):
        yield from check_fields(target, path, must(field, named(names.is_path_segment_name)))


def _validate_metric(metric: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    kind = metric.get("type", "")
    if not kind:
        yield required(path.child("type"), "must specify a metric source type")
    unknown = [] if kind in METRIC_TYPES else [not_supported(path.child("type"), kind, METRIC_TYPES)]
    sources = ("Object", "External", "Pods", "Resource", "ContainerResource")
    given = [source for source in sources if isinstance(metric.get(_FIELDS[source]), dict)]
    yield from unknown
    for source in given[:1]:
        yield from _validate_source(source, metric[_FIELDS[source]], path.child(_FIELDS[source]))
    if unknown:
        yield from unknown
        return
    if kind not in given:
        yield required(path.child(_FIELDS[kind]), "must populate information for the given metric source")
    surplus = [source for source in given if source != kind] if len(given) > 1 else []
    text = "must populate the given metric source only"
    yield from (forbidden(path.child(_FIELDS[source]), text) for source in surplus)


def _validate_source(kind: str, source: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    if kind == "Object":
        yield from _validate_target(get_object(source, "describedObject"), path.child("describedObject"))
    if kind == "Resource":
        yield from check_fields(source, path, must("name", detail="must specify a resource name"))
    elif kind == "ContainerResource":
        name = must("name", named(resource_name_problems), detail="must specify a resource name")
        container = must("container", named(names.is_dns1123_label), detail="must specify a container")
        yield from check_fields(source, path, name, container)
    else:
        name = must("name", named(names.is_path_segment_name), detail="must specify a metric name")
        yield from check_fields(get_object(source, "metric"), path.child("metric"), name)
    target, at = get_object(source, "target"), path.child("target")
    yield from _validate_metric_target(target, at)
    yield from _validate_choice(kind, target, at)


def _validate_choice(kind: str, target: JsonObject, path: FieldPath) -> list[FieldError]:
    """Which of the target's amounts are needed, and which exclude each other."""
    wanted, field, missing, both = {
        "Resource": ("averageUtilization", "averageUtilization", *_RAW_OR_UTILIZATION),
        "ContainerResource": ("averageUtilization", "averageUtilization", *_RAW_OR_UTILIZATION),
        "Pods": ("averageValue", "averageValue", "must specify a positive target averageValue", ""),
        "Object": ("value", "averageValue", "must set either a target value or averageValue", ""),
        "External": ("value", "averageValue", *_VALUE_OR_AVERAGE),
    }[kind]
    average, other = target.get("averageValue"), target.get(wanted)
    if average is None and other is None:
        return [required(path.child(field), missing)]
    if both and average is not None and other is not None:
        return [forbidden(path.child("value" if wanted == "value" else "averageValue"), both)]
    return []


_RAW_OR_UTILIZATION = (
    "must set either a target raw value or a target utilization",
    "may not set both a target raw value and a target utilization",
)
_VALUE_OR_AVERAGE = (
    "must set either a target value for metric or a per-pod target",
    "may not set both a target value for metric and a per-pod target",
)


def _validate_metric_target(target: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    kind = target.get("type", "")
    if not kind:
        yield required(path.child("type"), "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid(path.child("type"), kind, "must be either Utilization, Value, or AverageValue")
    utilization: Any = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        yield invalid(path.child("averageUtilization"), utilization, "must be greater than 0")
    for field in ("value", "averageValue"):
        if target.get(field) is not None and amount(target[field]).milli_value <= 0:
            yield invalid(path.child(field), str(target[field]), "must be positive")


def _validate_rules(rules: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    window = rules.get("stabilizationWindowSeconds")
    at = path.child("stabilizationWindowSeconds")
    if window is not None:
        if window < 0:
            yield invalid(at, window, "must be greater than or equal to zero")
        if window > 3600:
            yield invalid(at, window, "must be less than or equal to 3600")
    policy = rules.get("selectPolicy")
    if policy is not None and policy not in _POLICIES:
        yield not_supported(path.child("selectPolicy"), policy, _POLICIES)
    policies = get_list(rules, "policies")
    if not policies:
        yield required(path.child("policies"), "must specify at least one Policy")
    for position, item in enumerate(policies):
        here = path.child("policies").index(position)
        if item.get("type") not in ("Pods", "Percent"):
            yield not_supported(here.child("type"), item.get("type", ""), ["Percent", "Pods"])
        if item.get("value", 0) <= 0:
            yield invalid(here.child("value"), item.get("value", 0), "must be greater than zero")
        seconds = item.get("periodSeconds", 0)
        if seconds <= 0:
            yield invalid(here.child("periodSeconds"), seconds, "must be greater than zero")
        if seconds > 1800:
            yield invalid(here.child("periodSeconds"), seconds, "must be less than or equal to 1800")
