"""Flow schemas and priority levels: served as objects, nobody here acts on them."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, NONE, Table, age, plain
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required
from kubecore.resources import ResourceType

_GROUP = "flowcontrol.apiserver.k8s.io"
FLOW_SCHEMAS = ResourceType(_GROUP, "v1", "flowschemas", "FlowSchema", False)
PRIORITY_LEVELS = ResourceType(
    _GROUP, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False
)
NOT_ENFORCED = "this server does not limit requests by flow schemas and priority levels"


class FlowSchemaStrategy(BuiltinStrategy):
    """Which requests belong together."""

    allow_unconditional_update = False

    def complete(self, obj: JsonObject) -> None:
        """In the middle of the precedence."""
        if not obj["spec"].get("matchingPrecedence"):
            obj["spec"]["matchingPrecedence"] = 1000

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Precedence, level, and rules that match something."""
        spec = get_object(obj, "spec")
        path = FieldPath("spec")
        found: list[FieldError] = []
        precedence = spec.get("matchingPrecedence", 0)
        if precedence <= 0:
            found.append(invalid(path.child("matchingPrecedence"), precedence, "must be a positive value"))
        if precedence > 10000:
            text = "must not be greater than 10000"
            found.append(invalid(path.child("matchingPrecedence"), precedence, text))
        if not get_str(spec, "priorityLevelConfiguration", "name"):
            text = "must reference a priority level"
            found.append(required(path.child("priorityLevelConfiguration", "name"), text))
        for position, rule in enumerate(get_list(spec, "rules")):
            at = path.child("rules").index(position)
            if not rule.get("subjects"):
                found.append(required(at.child("subjects"), "subjects must contain at least one value"))
            if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
                text = "at least one of resourceRules and nonResourceRules has to be non-empty"
                found.append(required(at, text))
        return found

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """That nothing will happen."""
        return [NOT_ENFORCED] if old is None else []


class PriorityLevelStrategy(BuiltinStrategy):
    """How many requests run at once."""

    allow_unconditional_update = False

    def complete(self, obj: JsonObject) -> None:
        """Shares and limits of both types."""
        spec = obj["spec"]
        limited = spec.get("limited")
        if isinstance(limited, dict):
            if limited.get("nominalConcurrencyShares") is None:
                limited["nominalConcurrencyShares"] = 30
            limited.setdefault("lendablePercent", 0)
            response = limited.get("limitResponse") or {}
            queuing = response.get("queuing")
            if isinstance(queuing, dict):
                for field, value in (("queues", 64), ("queueLengthLimit", 50), ("handSize", 8)):
                    if not queuing.get(field):
                        queuing[field] = value
        exempt = spec.get("exempt")
        if isinstance(exempt, dict):
            exempt.setdefault("nominalConcurrencyShares", 0)
            exempt.setdefault("lendablePercent", 0)

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """One of the two types, with its part."""
        spec = get_object(obj, "spec")
        path = FieldPath("spec")
        kind = spec.get("type", "")
        if kind not in ("Exempt", "Limited"):
            return [not_supported(path.child("type"), kind, ["Exempt", "Limited"])]
        if kind == "Limited" and "limited" not in spec:
            return [required(path.child("limited"), "must not be empty when type is Limited")]
        if kind == "Exempt" and "limited" in spec:
            return [forbidden(path.child("limited"), "must be nil if the type is not Limited")]
        return []

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """That nothing will happen."""
        return [NOT_ENFORCED] if old is None else []


def _schema_cells(obj: JsonObject) -> list[Any]:
    spec = get_object(obj, "spec")
    conditions = get_list(obj, "status", "conditions")
    dangling = next((item.get("status") for item in conditions if item.get("type") == "Dangling"), "?")
    return [
        get_str(obj, "metadata", "name"),
        get_str(spec, "priorityLevelConfiguration", "name"),
        spec.get("matchingPrecedence", 0),
        get_str(spec, "distinguisherMethod", "type") or NONE,
        age(obj),
        dangling,
    ]


def _level_cells(obj: JsonObject) -> list[Any]:
    spec = get_object(obj, "spec")
    limited = get_object(spec, "limited")
    queuing = get_object(limited, "limitResponse", "queuing")
    shares = limited.get("nominalConcurrencyShares") if limited else NONE
    cells = [queuing.get(field, NONE) for field in ("queues", "handSize", "queueLengthLimit")]
    return [get_str(obj, "metadata", "name"), spec.get("type", ""), shares, *cells, age(obj)]


def definitions() -> list[ResourceDefinition]:
    """Flow schemas and priority levels."""
    schema_columns = (
        NAME,
        plain("PriorityLevel"),
        plain("MatchingPrecedence"),
        plain("DistinguisherMethod"),
        AGE,
        plain("MissingPL"),
    )
    level_columns = (
        NAME,
        plain("Type"),
        plain("NominalConcurrencyShares"),
        plain("Queues"),
        plain("HandSize"),
        plain("QueueLengthLimit"),
        AGE,
    )
    return [
        builtin(FLOW_SCHEMAS, FlowSchemaStrategy(), table=Table(schema_columns, _schema_cells)),
        builtin(PRIORITY_LEVELS, PriorityLevelStrategy(), table=Table(level_columns, _level_cells)),
    ]
