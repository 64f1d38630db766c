"""Leases: durations, counts, the strategy of coordinated leader election."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported
from kubecore.objects.names import is_qualified_name

COORDINATED_STRATEGIES = ("OldestEmulationVersion",)


def validate_lease(lease: JsonObject) -> Iterator[FieldError]:
    """Durations and counts."""
    spec = get_object(lease, "spec")
    path = FieldPath("spec")
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield invalid(path.child("leaseDurationSeconds"), duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield invalid(path.child("leaseTransitions"), transitions, "must be greater than or equal to 0")
    strategy = spec.get("strategy")
    if strategy is not None:
        if "/" in strategy:
            yield from (
                invalid(path.child("strategy"), strategy, text) for text in is_qualified_name(strategy)
            )
        elif strategy not in COORDINATED_STRATEGIES:
            yield not_supported(path.child("strategy"), strategy, COORDINATED_STRATEGIES)
    if spec.get("preferredHolder") and not strategy:
        yield forbidden(path.child("preferredHolder"), "may only be specified if `strategy` is defined")
