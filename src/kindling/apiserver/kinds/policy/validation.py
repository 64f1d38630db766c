"""PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import at_most_100_percent, int_or_percent
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, invalid

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
