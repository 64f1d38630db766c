"""``scheduling.k8s.io``: PriorityClasses, their values, and the names that are the system's own."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore import errors
from kubecore.json import JsonObject, get_str
from kubecore.objects.fields import FieldError, FieldPath, forbidden
from kubecore.resources import PRIORITY_CLASSES

SYSTEM_PREFIX = "system-"
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that exist even while their objects do not."""


def validate_class(obj: JsonObject) -> Iterator[FieldError]:
    """Names with the system prefix and values above the users' limit are reserved."""
    name, value = get_str(obj, "metadata", "name"), obj.get("value", 0)
    path = FieldPath("metadata", "name")
    if name.startswith(SYSTEM_PREFIX):
        if SYSTEM_CLASSES.get(name) != value:
            text = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only"
            yield forbidden(path, text + f". error: {_system_problem(name, value)}")
    elif value > HIGHEST_USER_PRIORITY:
        yield forbidden(
            "value",
            f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}",
        )
    yield from _POLICY(obj)


_POLICY = f.document(f.given("preemptionPolicy", f.choice("PreemptLowerPriority", "Never")))


def validate_class_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The value is immutable."""
    if new.get("value") != old.get("value"):
        yield forbidden("value", "may not be changed in an update.")


def _system_problem(name: str, value: int) -> str:
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    return f"value of {name} PriorityClass must be {known}" if known != value else ""


class PriorityClassStrategy(BuiltinStrategy):
    """The priority of pods; its value cannot be changed."""

    has_status = False
    rules = Rules(validate_class, update=validate_class_update, immutable=("preemptionPolicy",))

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """The generation of priority classes never changes."""
        return False

    def complete(self, obj: JsonObject) -> None:
        """Default to PreemptLowerPriority."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def before_delete(self, ctx: RequestContext, obj: JsonObject) -> JsonObject | None:
        """System classes cannot be deleted."""
        name = get_str(obj, "metadata", "name")
        if name in SYSTEM_CLASSES:
            raise errors.forbidden(
                PRIORITY_CLASSES, name, "this is a system priority class and cannot be deleted"
            )
        return None


def definitions() -> list[ResourceDefinition]:
    """Priority classes."""
    columns = (
        p.NAME,
        p.plain("Value", "value", absent=0, kind="integer"),
        p.plain("Global-Default", lambda obj: bool(obj.get("globalDefault")), kind="boolean"),
        p.AGE,
        p.plain("PreemptionPolicy", "preemptionPolicy", empty=""),
    )
    return [builtin(PRIORITY_CLASSES, PriorityClassStrategy(), short=("pc",), table=p.Table(*columns))]
