"""``coordination.k8s.io``: Leases, which say who holds what until when."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import one_of
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.objects.fields import FieldError, FieldPath
from kubecore.resources import LEASES

COORDINATED_STRATEGIES = ("OldestEmulationVersion",)


def _strategy(path: FieldPath, strategy: str) -> Iterable[FieldError]:
    return f.QUALIFIED(path, strategy) if "/" in strategy else one_of(path, strategy, COORDINATED_STRATEGIES)


_NO_STRATEGY = f.never("may only be specified if `strategy` is defined", "preferredHolder")
validate_lease = f.spec(
    f.given("leaseDurationSeconds", f.at_least(1, "must be greater than 0")),
    f.given("leaseTransitions", f.at_least(0)),
    f.given("strategy", _strategy),
    f.unless(lambda spec: spec.get("strategy"), _NO_STRATEGY),
)
"""Durations and counts."""


class LeaseStrategy(BuiltinStrategy):
    """Who holds what until when."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True
    allow_unconditional_update = False
    rules = Rules(validate_lease)


def definitions() -> list[ResourceDefinition]:
    """Leases."""
    return [
        builtin(
            LEASES,
            LeaseStrategy(),
            table=p.Table(p.NAME, p.plain("Holder", "spec.holderIdentity", empty=""), p.AGE),
        )
    ]
