"""Flow schemas and priority levels. They are stored only: this server does not limit requests by them."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, NONE, Table, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.resources import ResourceType

from .validation import validate_flow_schema, validate_priority_level

_GROUP = "flowcontrol.apiserver.k8s.io"
FLOW_SCHEMAS = ResourceType(_GROUP, "v1", "flowschemas", "FlowSchema", False)
PRIORITY_LEVELS = ResourceType(
    _GROUP, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False
)
NOT_ENFORCED = (
    "this object has no effect: the server does not limit requests by flow schemas and priority levels"
)


def _not_enforced(obj: JsonObject, old: JsonObject | None) -> list[str]:
    return [NOT_ENFORCED] if old is None else []


class FlowSchemaStrategy(BuiltinStrategy):
    """Which requests share a priority level."""

    rules = Rules(validate_flow_schema, warnings=_not_enforced)

    def complete(self, obj: JsonObject) -> None:
        """Default to precedence 1000."""
        if not obj["spec"].get("matchingPrecedence"):
            obj["spec"]["matchingPrecedence"] = 1000


class PriorityLevelStrategy(BuiltinStrategy):
    """How many requests run at once."""

    rules = Rules(validate_priority_level, warnings=_not_enforced)

    def complete(self, obj: JsonObject) -> None:
        """Default the shares and limits of both types."""
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


def _dangling(obj: JsonObject) -> Any:
    conditions = get_list(obj, "status", "conditions")
    return next((item.get("status") for item in conditions if item.get("type") == "Dangling"), "?")


def _shares(obj: JsonObject) -> Any:
    limited = get_object(obj, "spec", "limited")
    return limited.get("nominalConcurrencyShares") if limited else NONE


def definitions() -> list[ResourceDefinition]:
    """Flow schemas and priority levels."""
    schemas = Table(
        NAME,
        plain("PriorityLevel", "spec.priorityLevelConfiguration.name"),
        plain("MatchingPrecedence", "spec.matchingPrecedence", absent=0),
        plain("DistinguisherMethod", "spec.distinguisherMethod.type", empty=NONE),
        AGE,
        plain("MissingPL", _dangling),
    )
    queuing = "spec.limited.limitResponse.queuing"
    levels = Table(
        NAME,
        plain("Type", "spec.type"),
        plain("NominalConcurrencyShares", _shares),
        plain("Queues", f"{queuing}.queues", absent=NONE),
        plain("HandSize", f"{queuing}.handSize", absent=NONE),
        plain("QueueLengthLimit", f"{queuing}.queueLengthLimit", absent=NONE),
        AGE,
    )
    return [
        builtin(FLOW_SCHEMAS, FlowSchemaStrategy(), table=schemas),
        builtin(PRIORITY_LEVELS, PriorityLevelStrategy(), table=levels),
    ]
