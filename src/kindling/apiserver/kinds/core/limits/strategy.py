"""ResourceQuotas and LimitRanges."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, CREATED_AT, NAME, Table, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.resources import LIMIT_RANGES, RESOURCE_QUOTAS

from .validation import validate_limit_range, validate_quota, validate_quota_update


class QuotaStrategy(BuiltinStrategy):
    """The hard limits of a namespace. The quota controller and admission write what is used of them."""

    returns_deleted_object = True
    tracks_generation = False
    rules = Rules(validate_quota, update=validate_quota_update)


class LimitRangeStrategy(BuiltinStrategy):
    """Limits of single pods, containers and claims."""

    has_status = False
    allow_create_on_update = True
    tracks_generation = False
    rules = Rules(validate_limit_range)

    def complete(self, obj: JsonObject) -> None:
        """Container limits complete each other: max -> default -> defaultRequest <- min."""
        for item in get_list(obj, "spec", "limits"):
            if item.get("type") != "Container":
                continue
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            for field, amounts in (("default", default), ("defaultRequest", request)):
                if amounts:
                    item[field] = amounts


def _usage(obj: JsonObject, *, limits: bool) -> str:
    hard, used = get_object(obj, "status", "hard"), get_object(obj, "status", "used")
    names = sorted(name for name in hard if name.startswith("limits.") == limits)
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


def definitions() -> list[ResourceDefinition]:
    """Quotas and limit ranges."""
    return [
        builtin(
            RESOURCE_QUOTAS,
            QuotaStrategy(),
            short=("quota",),
            table=Table(
                NAME,
                plain("Request", lambda obj: _usage(obj, limits=False)),
                plain("Limit", lambda obj: _usage(obj, limits=True)),
                AGE,
            ),
        ),
        builtin(
            LIMIT_RANGES,
            LimitRangeStrategy(),
            short=("limits",),
            table=Table(NAME, CREATED_AT),
        ),
    ]
