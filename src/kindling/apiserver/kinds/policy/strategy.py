"""PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, age, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.names import is_path_segment_name
from kubecore.resources import POD_DISRUPTION_BUDGETS

from .validation import validate_budget, validate_budget_status


class BudgetStrategy(BuiltinStrategy):
    """How many pods of an application must stay up during voluntary disruptions."""

    allow_unconditional_update = False
    rules = Rules(validate_budget, status=validate_budget_status)

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """Anything that fits into a path."""
        return is_path_segment_name(name)


def _cells(obj: JsonObject) -> list[Any]:
    spec = get_object(obj, "spec")
    amounts = [spec.get("minAvailable"), spec.get("maxUnavailable")]
    shown = ["N/A" if amount is None else str(amount) for amount in amounts]
    allowed = get_object(obj, "status").get("disruptionsAllowed", 0)
    return [get_str(obj, "metadata", "name"), *shown, allowed, age(obj)]


def definitions() -> list[ResourceDefinition]:
    """Disruption budgets."""
    columns = (
        NAME,
        plain("Min Available"),
        plain("Max Unavailable"),
        plain("Allowed Disruptions", kind="integer"),
        AGE,
    )
    return [
        builtin(POD_DISRUPTION_BUDGETS, BudgetStrategy(), short=("pdb",), table=Table(*columns, fill=_cells))
    ]
