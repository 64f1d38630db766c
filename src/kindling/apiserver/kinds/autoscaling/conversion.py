"""autoscaling/v1 and v2: what version 1 cannot say is kept in annotations, as JSON."""

from __future__ import annotations

from typing import Any

import orjson

from kubecore.json import JsonObject, get_object

METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"


def _is_cpu_percent(metric: JsonObject) -> bool:
    resource = get_object(metric, "resource")
    return (
        metric.get("type") == "Resource"
        and resource.get("name") == "cpu"
        and get_object(resource, "target").get("averageUtilization") is not None
    )


def _cpu_now(metric: JsonObject) -> bool:
    resource = get_object(metric, "resource")
    return (
        resource.get("name") == "cpu"
        and get_object(resource, "current").get("averageUtilization") is not None
    )


def to_v1(obj: JsonObject) -> JsonObject:
    """A version 2 object as version 1."""
    spec, status = dict(get_object(obj, "spec")), dict(get_object(obj, "status"))
    metadata = dict(get_object(obj, "metadata"))
    annotations = dict(metadata.get("annotations") or {})
    metrics = list(spec.pop("metrics", None) or [])
    cpu = next((metric for metric in metrics if _is_cpu_percent(metric)), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
        metrics.remove(cpu)
    behavior = spec.pop("behavior", None)
    current = list(status.pop("currentMetrics", None) or [])
    for metric in current:
        if _cpu_now(metric):
            status["currentCPUUtilizationPercentage"] = metric["resource"]["current"]["averageUtilization"]
    conditions = status.pop("conditions", None)
    for key, value in (
        (METRICS, metrics),
        (BEHAVIOR, behavior),
        (CURRENT_METRICS, current),
        (CONDITIONS, conditions),
    ):
        if value:
            annotations[key] = orjson.dumps(value).decode()
    status.setdefault("currentReplicas", 0)
    status.setdefault("desiredReplicas", 0)
    if annotations:
        metadata["annotations"] = annotations
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def to_v2(obj: JsonObject) -> JsonObject:
    """A version 1 object as version 2."""
    spec, status = dict(get_object(obj, "spec")), dict(get_object(obj, "status"))
    metadata = dict(get_object(obj, "metadata"))
    annotations = dict(metadata.get("annotations") or {})
    metrics = _taken(annotations, METRICS) or []
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
        metrics = [{"type": "Resource", "resource": cpu}, *metrics]
    if metrics:
        spec["metrics"] = metrics
    behavior = _taken(annotations, BEHAVIOR)
    if behavior:
        spec["behavior"] = behavior
    current = _taken(annotations, CURRENT_METRICS)
    utilization = status.pop("currentCPUUtilizationPercentage", None)
    if not current and utilization is not None:
        current = [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}}
        ]
    status["currentMetrics"] = current or None
    conditions = _taken(annotations, CONDITIONS)
    if conditions:
        status["conditions"] = conditions
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _taken(annotations: JsonObject, key: str) -> Any:
    text = annotations.pop(key, None)
    if not isinstance(text, str):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
