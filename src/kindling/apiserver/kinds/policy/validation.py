"""PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery.checks import at_most_100_percent, counts, int_or_percent
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid
from kubecore.objects.selectors import validate_label_selector_object

_SPEC = FieldPath("spec")
_FIELDS = ("minAvailable", "maxUnavailable")


def validate_budget(budget: JsonObject) -> Iterator[FieldError]:
    """At most one of minAvailable and maxUnavailable, as a number or a percentage."""
    spec = get_object(budget, "spec")
    if all(spec.get(field) is not None for field in _FIELDS):
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        yield invalid(_SPEC, shown, "minAvailable and maxUnavailable cannot be both set")
    for field in _FIELDS:
        value = spec.get(field)
        if value is not None:
            yield from int_or_percent(_SPEC.child(field), value)
            yield from at_most_100_percent(_SPEC.child(field), value)
    if spec.get("selector") is not None:
        yield from validate_label_selector_object(spec["selector"], _SPEC.child("selector"))
    yield from check_fields(
        spec, _SPEC, given("unhealthyPodEvictionPolicy", choice("AlwaysAllow", "IfHealthyBudget"))
    )


def validate_budget_status(budget: JsonObject) -> list[FieldError]:
    """Counts are not negative."""
    fields = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return counts(get_object(budget, "status"), FieldPath("status"), *fields)
