"""HorizontalPodAutoscalers of version 2."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount
from kindling.apiserver.kinds.machinery.fields import check_fields, must, named
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required

METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_FIELDS = {kind: kind[:1].lower() + kind[1:] for kind in METRIC_TYPES}
_SPEC = FieldPath("spec")
_POLICIES = ("Disabled", "Max", "Min")


def validate_autoscaler(obj: JsonObject) -> list[FieldError]:
    """Bounds, target, metrics and behaviour."""
    spec = get_object(obj, "spec")
    found: list[FieldError] = []
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        text = "must be greater than or equal to 1"
        found.append(invalid(_SPEC.child("minReplicas"), least, text))
    if most < 1:
        found.append(required(_SPEC.child("maxReplicas"), "must be set and greater than 0"))
    if least is not None and most < least:
        text = "must be greater than or equal to `minReplicas`"
        found.append(invalid(_SPEC.child("maxReplicas"), most, text))
    found += _validate_target(get_object(spec, "scaleTargetRef"), _SPEC.child("scaleTargetRef"))
    metrics = get_list(spec, "metrics")
    for position, metric in enumerate(metrics):
        found += _validate_metric(metric, _SPEC.child("metrics").index(position))
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        found.append(forbidden(_SPEC.child("metrics"), text))
    behavior = get_object(spec, "behavior")
    for field in ("scaleUp", "scaleDown"):
        if isinstance(behavior.get(field), dict):
            found += _validate_rules(behavior[field], _SPEC.child("behavior", field))
    return found


def _validate_target(target: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    for field in ("kind", "name"):
        found += check_fields(target, path, must(field, named(names.is_path_segment_name)))
    version = target.get("apiVersion", "")
    if not version:
        found.append(invalid(path.child("apiVersion"), version, "apiVersion must specify API group"))
    return found


def _validate_metric(metric: JsonObject, path: FieldPath) -> list[FieldError]:
    kind = metric.get("type", "")
    if not kind:
        return [required(path.child("type"), "must specify a metric source type")]
    if kind not in METRIC_TYPES:
        # The server finds the type unknown twice: among the types, and among the sources given.
        problem = not_supported(path.child("type"), kind, METRIC_TYPES)
        return [problem, problem]
    found: list[FieldError] = []
    given = [field for field in _FIELDS.values() if isinstance(metric.get(field), dict)]
    wanted = _FIELDS[kind]
    for field in given:
        if field != wanted:
            found.append(forbidden(path.child(field), "must populate the given metric source only"))
    if wanted not in given:
        text = "must populate information for the given metric source"
        return [*found, required(path.child(wanted), text)]
    return found + _validate_source(kind, metric[wanted], path.child(wanted))


def _validate_source(kind: str, source: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    if kind in ("Resource", "ContainerResource"):
        if not source.get("name"):
            found.append(required(path.child("name"), "must specify a resource name"))
        if kind == "ContainerResource" and not source.get("container"):
            found.append(required(path.child("container"), "must specify a container"))
    else:
        name = get_object(source, "metric").get("name", "")
        if not name:
            found.append(required(path.child("metric", "name"), "must specify a metric name"))
    if kind == "Object":
        found += _validate_target(get_object(source, "describedObject"), path.child("describedObject"))
    target = get_object(source, "target")
    found += _validate_metric_target(target, path.child("target"))
    return found + _validate_choice(kind, target, path.child("target"))


def _validate_choice(kind: str, target: JsonObject, path: FieldPath) -> list[FieldError]:
    utilization, average, value = (
        target.get(field) for field in ("averageUtilization", "averageValue", "value")
    )
    if kind in ("Resource", "ContainerResource"):
        if utilization is None and average is None:
            text = "must set either a target raw value or a target utilization"
            return [required(path.child("averageUtilization"), text)]
        if utilization is not None and average is not None:
            text = "may not set both a target raw value and a target utilization"
            return [forbidden(path.child("averageValue"), text)]
    elif kind == "Pods":
        if average is None:
            return [required(path.child("averageValue"), "must specify a positive target averageValue")]
    elif value is None and average is None:
        text = "must set either a target value for metric or a per-pod target"
        return [required(path.child("averageValue"), text)]
    return []


def _validate_metric_target(target: JsonObject, path: FieldPath) -> list[FieldError]:
    kind = target.get("type", "")
    found: list[FieldError] = []
    if not kind:
        found.append(required(path.child("type"), "must specify a metric target type"))
    elif kind not in ("Utilization", "Value", "AverageValue"):
        text = "must be either Utilization, Value, or AverageValue"
        found.append(invalid(path.child("type"), kind, text))
    utilization: Any = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        found.append(invalid(path.child("averageUtilization"), utilization, "must be greater than 0"))
    for field in ("value", "averageValue"):
        if target.get(field) is not None and amount(target[field]).milli_value <= 0:
            found.append(invalid(path.child(field), str(target[field]), "must be positive"))
    return found


def _validate_rules(rules: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    window = rules.get("stabilizationWindowSeconds")
    at = path.child("stabilizationWindowSeconds")
    if window is not None:
        if window < 0:
            found.append(invalid(at, window, "must be greater than or equal to zero"))
        if window > 3600:
            found.append(invalid(at, window, "must be less than or equal to 3600"))
    policy = rules.get("selectPolicy")
    if policy is not None and policy not in _POLICIES:
        found.append(not_supported(path.child("selectPolicy"), policy, _POLICIES))
    policies = get_list(rules, "policies")
    if not policies:
        found.append(required(path.child("policies"), "must specify at least one Policy"))
    for position, item in enumerate(policies):
        here = path.child("policies").index(position)
        if item.get("type") not in ("Pods", "Percent"):
            found.append(not_supported(here.child("type"), item.get("type", ""), ["Percent", "Pods"]))
        if item.get("value", 0) <= 0:
            found.append(invalid(here.child("value"), item.get("value", 0), "must be greater than zero"))
        seconds = item.get("periodSeconds", 0)
        if seconds <= 0:
            found.append(invalid(here.child("periodSeconds"), seconds, "must be greater than zero"))
        if seconds > 1800:
            found.append(invalid(here.child("periodSeconds"), seconds, "must be less than or equal to 1800"))
    return found
