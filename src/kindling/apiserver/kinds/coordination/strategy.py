"""Leases, priority classes and runtime classes."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.core.pods.placement import validate_tolerations
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, age, plain
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore import errors
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported
from kubecore.objects.names import is_dns1123_label, is_qualified_name
from kubecore.objects.selectors import validate_labels
from kubecore.resources import LEASES, PRIORITY_CLASSES, ResourceType

RUNTIME_CLASSES = ResourceType("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
SYSTEM_PREFIX = "system-"
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
COORDINATED_STRATEGIES = ("OldestEmulationVersion",)


class LeaseStrategy(BuiltinStrategy):
    """Who holds what until when."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True
    allow_unconditional_update = False

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Durations and counts."""
        spec = get_object(obj, "spec")
        path = FieldPath("spec")
        found: list[FieldError] = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            found.append(invalid(path.child("leaseDurationSeconds"), duration, "must be greater than 0"))
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            text = "must be greater than or equal to 0"
            found.append(invalid(path.child("leaseTransitions"), transitions, text))
        strategy = spec.get("strategy")
        if strategy is not None:
            if "/" in strategy:
                found += [
                    invalid(path.child("strategy"), strategy, text) for text in is_qualified_name(strategy)
                ]
            elif strategy not in COORDINATED_STRATEGIES:
                found.append(not_supported(path.child("strategy"), strategy, COORDINATED_STRATEGIES))
        if spec.get("preferredHolder") and not strategy:
            text = "may only be specified if `strategy` is defined"
            found.append(forbidden(path.child("preferredHolder"), text))
        return found


class PriorityClassStrategy(BuiltinStrategy):
    """How important pods are; the value is fixed."""

    has_status = False

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """Generations of classes stay what they were at first."""
        return False

    def complete(self, obj: JsonObject) -> None:
        """Pods preempt lower ones."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """High values and the system prefix are Kubernetes' own."""
        name, value = get_str(obj, "metadata", "name"), obj.get("value", 0)
        path = FieldPath("metadata", "name")
        found: list[FieldError] = []
        if name.startswith(SYSTEM_PREFIX):
            if SYSTEM_CLASSES.get(name) != value:
                text = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only"
                found.append(forbidden(path, text + f". error: {_system_problem(name, value)}"))
        elif value > HIGHEST_USER_PRIORITY:
            found.append(
                forbidden(
                    "value",
                    f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}",
                )
            )
        policy = obj.get("preemptionPolicy")
        if policy is not None and policy not in ("PreemptLowerPriority", "Never"):
            found.append(not_supported("preemptionPolicy", policy, ["PreemptLowerPriority", "Never"]))
        return found

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Value and policy stay."""
        found: list[FieldError] = []
        if new.get("value") != old.get("value"):
            found.append(forbidden("value", "may not be changed in an update."))
        if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
            found.append(invalid("preemptionPolicy", new.get("preemptionPolicy"), "field is immutable"))
        return found

    def before_delete(self, ctx: RequestContext, obj: JsonObject) -> JsonObject | None:
        """System classes stay."""
        name = get_str(obj, "metadata", "name")
        if name in SYSTEM_CLASSES:
            raise errors.forbidden(
                PRIORITY_CLASSES, name, "this is a system priority class and cannot be deleted"
            )
        return None


def _system_problem(name: str, value: int) -> str:
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    return f"value of {name} PriorityClass must be {known}" if known != value else ""


class RuntimeClassStrategy(BuiltinStrategy):
    """How containers are run; the handler is fixed."""

    has_status = False
    tracks_generation = False
    allow_unconditional_update = False

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """The handler's name, and where pods of the class may go."""
        handler = obj.get("handler", "")
        found = [invalid("handler", handler, message) for message in is_dns1123_label(handler)]
        scheduling = obj.get("scheduling")
        if isinstance(scheduling, dict):
            path = FieldPath("scheduling")
            found += validate_labels(get_object(scheduling, "nodeSelector"), path.child("nodeSelector"))
            found += validate_tolerations(scheduling.get("tolerations") or [], path.child("tolerations"))
        return found

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The handler stays."""
        found: list[FieldError] = []
        if new.get("handler") != old.get("handler"):
            found.append(invalid("handler", new.get("handler"), "field is immutable"))
        return found


def _name(obj: JsonObject) -> str:
    return get_str(obj, "metadata", "name")


def _lease_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), get_object(obj, "spec").get("holderIdentity") or "", age(obj)]


def _priority_cells(obj: JsonObject) -> list[Any]:
    policy = obj.get("preemptionPolicy") or ""
    return [_name(obj), obj.get("value", 0), bool(obj.get("globalDefault")), age(obj), policy]


def _runtime_cells(obj: JsonObject) -> list[Any]:
    return [_name(obj), obj.get("handler", ""), age(obj)]


def definitions() -> list[ResourceDefinition]:
    """Leases, priority classes, runtime classes."""
    return [
        builtin(LEASES, LeaseStrategy(), table=Table((NAME, plain("Holder"), AGE), _lease_cells)),
        builtin(
            PRIORITY_CLASSES,
            PriorityClassStrategy(),
            short=("pc",),
            table=Table(
                (
                    NAME,
                    plain("Value", "integer"),
                    plain("Global-Default", "boolean"),
                    AGE,
                    plain("PreemptionPolicy"),
                ),
                _priority_cells,
            ),
        ),
        builtin(
            RUNTIME_CLASSES,
            RuntimeClassStrategy(),
            table=Table((NAME, plain("Handler"), AGE), _runtime_cells),
        ),
    ]
