"""HorizontalPodAutoscalers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError
from kubecore.resources import ResourceType

from . import conversion as autoscaling_conversion
from .validation import validate_autoscaler

V2 = ResourceType("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
V1 = ResourceType("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
_SHOWN = 2


def _percent_cpu(utilization: int) -> JsonObject:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": utilization}},
    }


class AutoscalerStrategy(BuiltinStrategy):
    """How many pods a workload shall have."""

    tracks_generation = False
    rules = Rules(validate_autoscaler, status=f.status(*f.counts("currentReplicas", "desiredReplicas")))

    def complete(self, obj: JsonObject) -> None:
        """Default to at least one pod and to 80 % of the requested CPU."""
        spec = obj["spec"]
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            spec["metrics"] = [_percent_cpu(80)]
        behavior = spec.get("behavior")
        if isinstance(behavior, dict):
            _default_behavior(behavior)


def _default_behavior(behavior: JsonObject) -> None:
    up, down = behavior.setdefault("scaleUp", {}), behavior.setdefault("scaleDown", {})
    up.setdefault("stabilizationWindowSeconds", 0)
    up.setdefault("selectPolicy", "Max")
    up.setdefault(
        "policies",
        [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    )
    down.setdefault("selectPolicy", "Max")
    down.setdefault("policies", [{"type": "Percent", "value": 100, "periodSeconds": 15}])


class V1Strategy(AutoscalerStrategy):
    """Version 1 has fields for cpu only; other metrics are in annotations."""

    def complete(self, obj: JsonObject) -> None:
        """Default to at least one pod."""
        obj["spec"].setdefault("minReplicas", 1)

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Validate as version 2."""
        return list(validate_autoscaler(autoscaling_conversion.to_v2(dict(obj))))


class AutoscalerConverter:
    """Conversion between autoscaling/v1 and autoscaling/v2."""

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        """See Converter.convert."""
        change = (
            autoscaling_conversion.to_v1 if api_version == V1.api_version else autoscaling_conversion.to_v2
        )
        return [obj if obj.get("apiVersion") == api_version else change(obj) for obj in objects]


def _metric_text(metric: JsonObject, current: JsonObject) -> str:
    kind = metric.get("type", "")
    field = kind[:1].lower() + kind[1:]
    source, state = get_object(metric, field), get_object(current, field, "current")
    target = get_object(source, "target")
    prefix = f"{source.get('name')}: " if kind in ("Resource", "ContainerResource") else ""
    if target.get("averageUtilization") is not None:
        now = state.get("averageUtilization")
        shown = p.UNKNOWN if now is None else f"{now}%"
        return f"{prefix}{shown}/{target['averageUtilization']}%"
    if target.get("averageValue") is not None:
        suffix = " (avg)" if kind in ("Object", "External") else ""
        return f"{prefix}{state.get('averageValue') or p.UNKNOWN}/{target['averageValue']}{suffix}"
    return f"{prefix}{state.get('value') or p.UNKNOWN}/{target.get('value') or '<auto>'}"


def _metrics(obj: JsonObject) -> str:
    metrics = get_list(obj, "spec", "metrics")
    current = get_list(obj, "status", "currentMetrics")
    texts = [
        _metric_text(metric, current[position] if position < len(current) else {})
        for position, metric in enumerate(metrics)
    ]
    return p.limited(texts, _SHOWN, ", ")


def _cells(obj: JsonObject) -> list[Any]:
    if obj.get("apiVersion") == V1.api_version:
        obj = autoscaling_conversion.to_v2(dict(obj))
    spec, status = get_object(obj, "spec"), get_object(obj, "status")
    target = get_object(spec, "scaleTargetRef")
    minimum = spec.get("minReplicas")
    return [
        get_str(obj, "metadata", "name"),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(obj),
        p.UNSET if minimum is None else str(minimum),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        p.age(obj),
    ]


_TABLE = p.Table(
    p.NAME,
    p.plain("Reference"),
    p.plain("Targets"),
    p.plain("MinPods"),
    p.plain("MaxPods"),
    p.plain("Replicas"),
    p.AGE,
    fill=_cells,
)


def definitions() -> list[ResourceDefinition]:
    """Autoscalers in both versions, the preferred one first."""
    converter = AutoscalerConverter()
    found = []
    for resource, strategy in ((V2, AutoscalerStrategy()), (V1, V1Strategy())):
        definition = builtin(
            resource,
            strategy,
            short=("hpa",),
            categories=("all",),
            table=_TABLE,
            storage_version=V2.api_version,
        )
        definition.converter = converter
        found.append(definition)
    return found
