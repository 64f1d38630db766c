"""PriorityClasses."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore import errors
from kubecore.json import JsonObject, get_str
from kubecore.resources import PRIORITY_CLASSES

from .validation import SYSTEM_CLASSES, validate_class, validate_class_update


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
        NAME,
        plain("Value", "value", absent=0, kind="integer"),
        plain("Global-Default", lambda obj: bool(obj.get("globalDefault")), kind="boolean"),
        AGE,
        plain("PreemptionPolicy", "preemptionPolicy", empty=""),
    )
    return [builtin(PRIORITY_CLASSES, PriorityClassStrategy(), short=("pc",), table=Table(*columns))]
