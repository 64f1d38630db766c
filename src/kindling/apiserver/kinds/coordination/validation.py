"""Leases: durations, counts, the strategy of coordinated leader election."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.machinery.checks import one_of
from kindling.apiserver.kinds.machinery.fields import QUALIFIED, at_least, given, spec
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, forbidden

COORDINATED_STRATEGIES = ("OldestEmulationVersion",)


def _strategy(path: FieldPath, strategy: str) -> Iterable[FieldError]:
    return QUALIFIED(path, strategy) if "/" in strategy else one_of(path, strategy, COORDINATED_STRATEGIES)


def _holder(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("preferredHolder") and not spec.get("strategy"):
        yield forbidden(path.child("preferredHolder"), "may only be specified if `strategy` is defined")


validate_lease = spec(
    given("leaseDurationSeconds", at_least(1, "must be greater than 0")),
    given("leaseTransitions", at_least(0)),
    given("strategy", _strategy),
    _holder,
)
"""Durations and counts."""
