"""``policy``: PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin, path_segment
from kindling.apiserver.kinds.machinery.checks import at_most_100_percent, int_or_percent
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid
from kubecore.resources import POD_DISRUPTION_BUDGETS

_SHOWN = {"MinAvailable": None, "Selector": None, "MaxUnavailable": None, "UnhealthyPodEvictionPolicy": None}


def _only_one(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = internal_form(spec, _SHOWN)
        yield invalid(path, shown, "minAvailable and maxUnavailable cannot be both set")


validate_budget = f.spec(
    _only_one,
    f.given("minAvailable", int_or_percent, at_most_100_percent),
    f.given("maxUnavailable", int_or_percent, at_most_100_percent),
    f.given("selector", f.selector),
    f.given("unhealthyPodEvictionPolicy", f.choice("AlwaysAllow", "IfHealthyBudget")),
)
"""At most one of minAvailable and maxUnavailable, as a number or a percentage."""
validate_budget_status = f.status(
    *f.counts("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
)
"""Counts are not negative."""


class BudgetStrategy(BuiltinStrategy):
    """How many pods of an application must stay up during voluntary disruptions."""

    allow_unconditional_update = False
    metadata_checks = (0, 0)
    standard_finalizers = False
    validate_name = path_segment
    rules = Rules(validate_budget, status=validate_budget_status)


def _amount(obj: JsonObject, field: str) -> str:
    amount = get_object(obj, "spec").get(field)
    return "N/A" if amount is None else str(amount)


def definitions() -> list[ResourceDefinition]:
    """Disruption budgets."""
    table = p.Table(
        p.NAME,
        p.plain("Min Available", lambda obj: _amount(obj, "minAvailable")),
        p.plain("Max Unavailable", lambda obj: _amount(obj, "maxUnavailable")),
        p.plain("Allowed Disruptions", "status.disruptionsAllowed", kind="integer", absent=0),
        p.AGE,
    )
    return [builtin(POD_DISRUPTION_BUDGETS, BudgetStrategy(), short=("pdb",), table=table)]
