"""Leases: who holds what until when."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.resources import LEASES

from .validation import validate_lease


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
            table=Table(NAME, plain("Holder", "spec.holderIdentity", empty=""), AGE),
        )
    ]
