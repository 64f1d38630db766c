"""PodDisruptionBudgets."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
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


def _amount(obj: JsonObject, field: str) -> str:
    amount = get_object(obj, "spec").get(field)
    return "N/A" if amount is None else str(amount)


def definitions() -> list[ResourceDefinition]:
    """Disruption budgets."""
    table = Table(
        NAME,
        plain("Min Available", lambda obj: _amount(obj, "minAvailable")),
        plain("Max Unavailable", lambda obj: _amount(obj, "maxUnavailable")),
        plain("Allowed Disruptions", "status.disruptionsAllowed", kind="integer", absent=0),
        AGE,
    )
    return [builtin(POD_DISRUPTION_BUDGETS, BudgetStrategy(), short=("pdb",), table=table)]
