"""HorizontalPodAutoscalers of version 2."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import not_
from typing import Any

from kindling.apiserver.kinds.core.pods.resources import resource_name_problems
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import amount, one_of, quantity
from kubecore.json import JsonObject, get_list
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required

METRIC_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_FIELDS = {kind: kind[:1].lower() + kind[1:] for kind in METRIC_TYPES}


_TARGET = (f.must("kind", f.PATH_SEGMENT), f.must("name", f.PATH_SEGMENT))
_GROUP_GIVEN = f.refused(not_, "apiVersion must specify API group")


def _bounds(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and most < least:
        text = "must be greater than or equal to `minReplicas`"
        yield invalid(path.child("maxReplicas"), most, text)


def _to_zero(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    metrics = get_list(spec, "metrics")
    if spec.get("minReplicas") == 0 and not any(_OF_OTHERS(metric) for metric in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden(path.child("metrics"), text)


_OF_OTHERS = f.equals("type", "Object", "External")


def _metric(path: FieldPath, metric: JsonObject) -> Iterator[FieldError]:
    kind = metric.get("type", "")
    if not kind:
        yield required(path.child("type"), "must specify a metric source type")
    unknown = one_of(path.child("type"), kind, METRIC_TYPES)
    sources = ("Object", "External", "Pods", "Resource", "ContainerResource")
    chosen = [source for source in sources if isinstance(metric.get(_FIELDS[source]), dict)]
    yield from unknown
    for source in chosen[:1]:
        yield from f.check_fields(metric[_FIELDS[source]], path.child(_FIELDS[source]), *_source(source))
    if unknown:
        yield from unknown
        return
    if kind not in chosen:
        yield required(path.child(_FIELDS[kind]), "must populate information for the given metric source")
    if len(chosen) > 1:
        surplus = [_FIELDS[source] for source in chosen if source != kind]
        yield from f.absent("must populate the given metric source only", *surplus)(path, metric)


def _source(kind: str) -> Iterator[f.Row]:
    """The rules of a metric's source."""
    if kind == "Object":
        yield f.part("describedObject", *_TARGET)
    if kind == "Resource":
        yield f.must("name", detail="must specify a resource name")
    elif kind == "ContainerResource":
        yield f.must("name", f.named(resource_name_problems), detail="must specify a resource name")
        yield f.must("container", f.LABEL, detail="must specify a container")
    else:
        yield f.part("metric", f.must("name", f.PATH_SEGMENT, detail="must specify a metric name"))
    yield f.part("target", *_METRIC_TARGET, partial(_amounts, kind))


def _amounts(kind: str, path: FieldPath, target: JsonObject) -> list[FieldError]:
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


def _positive(path: FieldPath, value: Any) -> Iterator[FieldError]:
    if amount(value).milli_value <= 0:
        yield invalid(path, str(value), "must be positive")


_UNKNOWN_TYPE = "must be either Utilization, Value, or AverageValue"
_METRIC_TARGET = (
    f.always(
        "type",
        "",
        f.lacking(not_, "must specify a metric target type"),
        f.refused(lambda kind: kind not in ("Utilization", "Value", "AverageValue"), _UNKNOWN_TYPE),
    ),
    f.given("averageUtilization", f.at_least(1, "must be greater than 0")),
    f.given("value", _positive),
    f.given("averageValue", _positive),
)
_ABOVE_ZERO = f.at_least(1, "must be greater than zero")
_BEHAVIOR = (
    f.given(
        "stabilizationWindowSeconds", f.at_least(0, "must be greater than or equal to zero"), f.at_most(3600)
    ),
    f.given("selectPolicy", f.choice("Disabled", "Max", "Min")),
    f.must(
        "policies",
        f.items(
            f.always("type", "", f.choice("Percent", "Pods")),
            f.always("value", 0, _ABOVE_ZERO),
            f.always("periodSeconds", 0, _ABOVE_ZERO, f.at_most(1800)),
        ),
        detail="must specify at least one Policy",
    ),
    f.given("tolerance", quantity),
)
validate_autoscaler = f.spec(
    f.given("minReplicas", f.at_least(1)),
    f.must("maxReplicas", f.at_least(1), detail="must be set and greater than 0"),
    _bounds,
    f.part("scaleTargetRef", *_TARGET, f.always("apiVersion", "", _GROUP_GIVEN)),
    f.may("metrics", f.items(_metric)),
    _to_zero,
    f.part("behavior", f.given("scaleUp", *_BEHAVIOR), f.given("scaleDown", *_BEHAVIOR)),
)
"""Bounds, target, metrics and behaviour."""
