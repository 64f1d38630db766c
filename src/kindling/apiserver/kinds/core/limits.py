"""ResourceQuotas and LimitRanges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.resources import (
    COUNTED_RESOURCES,
    QUOTA_RESOURCES,
    may_overcommit,
    plain_name_problems,
    resource_name_problems,
    whole,
)
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.checks import amount, messages, quantity
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required
from kubecore.resources import LIMIT_RANGES, RESOURCE_QUOTAS

_SPEC = FieldPath("spec")
SCOPES = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
)
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort "
    "or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_VALUES_NEEDED = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
_NO_VALUES = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
_POD_RESOURCES = {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "pods"}


def _unfit(scope: str, hard: Iterable[str]) -> list[str]:
    """Limited resources that a scope does not apply to."""
    fit = {"BestEffort": {"pods"}, "VolumeAttributesClass": {"persistentvolumeclaims", "requests.storage"}}
    allowed = fit.get(scope, _POD_RESOURCES)
    if scope not in SCOPES:
        return []
    return [name for name in sorted(hard) if name in QUOTA_RESOURCES and name not in allowed]


def _quota_name(name: str, path: FieldPath) -> Iterator[FieldError]:
    yield from messages(path, name, names.is_qualified_name)
    if "/" not in name and name not in QUOTA_RESOURCES - {"storage"} and "hugepages-" not in name:
        yield invalid(path, name, "must be a standard resource for quota")


def validate_quota(quota: JsonObject) -> Iterator[FieldError]:
    """Hard limits, and scopes that fit them and each other."""
    spec = get_object(quota, "spec")
    hard = get_object(spec, "hard")
    yield from _quota_amounts(_SPEC.child("hard"), hard)
    yield from _validate_scopes(get_list(spec, "scopes"), set(hard))
    at = _SPEC.child("scopeSelector", "matchExpressions")
    requirements = get_list(spec, "scopeSelector", "matchExpressions")
    shown = internal_form(spec["scopeSelector"], _INTERNAL_SELECTOR) if requirements else None
    text = "unsupported scope applied to resource"
    for requirement in requirements:
        unfit = [invalid(at, shown, text) for _ in _unfit(requirement.get("scopeName", ""), hard)]
        yield from _validate_scope_requirement(requirement, at, unfit)
    named = {item.get("scopeName") for item in get_list(spec, "scopeSelector", "matchExpressions")}
    for pair in _CONFLICTS:
        if pair <= named:
            yield invalid(at, get_list(spec, "scopes") or None, "conflicting scopes")


def _quota_amounts(path: FieldPath, amounts: JsonObject) -> Iterator[FieldError]:
    """Amounts by what may be limited; what is counted comes in whole numbers."""
    for name, value in sorted(amounts.items()):
        at = path.key(name)
        yield from _quota_name(name, at)
        yield from quantity(at, value)
        if name in COUNTED_RESOURCES and amount(value).milli_value % 1000:
            yield invalid(at, str(value), "must be an integer")
        yield from whole(at, name, value)


def validate_quota_status(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """What is limited and used, as the controller says."""
    for field in ("hard", "used"):
        yield from _quota_amounts(FieldPath("status", field), get_object(new, "status", field))


_INTERNAL_SELECTOR = {"MatchExpressions": [{"ScopeName": "", "Operator": "", "Values": None}]}


def _validate_scopes(scopes: list[Any], hard: set[str]) -> Iterator[FieldError]:
    at = _SPEC.child("scopes")
    for scope in scopes:
        if scope not in SCOPES:
            yield invalid(at, scopes, "unsupported scope")
        yield from (invalid(at, scopes, "unsupported scope applied to resource") for _ in _unfit(scope, hard))
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            yield invalid(at, scopes, "conflicting scopes")


def _validate_scope_requirement(
    requirement: JsonObject, path: FieldPath, unfit: list[FieldError]
) -> Iterator[FieldError]:
    scope, operator = requirement.get("scopeName", ""), requirement.get("operator", "")
    values = get_list(requirement, "values")
    if scope not in SCOPES:
        yield invalid(path.child("scopeName"), scope, "unsupported scope")
    yield from unfit
    if scope not in ("PriorityClass", "VolumeAttributesClass") and scope in SCOPES and operator != "Exists":
        yield invalid(path.child("operator"), operator, _ONLY_EXISTS)
    if operator in ("In", "NotIn"):
        if not values:
            yield required(path.child("values"), _VALUES_NEEDED)
    elif operator not in ("Exists", "DoesNotExist"):
        yield invalid(path.child("operator"), operator, "not a valid selector operator")
    elif values:
        yield invalid(path.child("values"), values, _NO_VALUES)


def validate_quota_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Scopes never change."""
    yield from validate_quota(new)
    scopes, known = set(get_list(new, "spec", "scopes")), set(get_list(old, "spec", "scopes"))
    if scopes != known:
        yield invalid(_SPEC.child("scopes"), get_list(new, "spec", "scopes"), "field is immutable")


def _limit_type(path: FieldPath, kind: str) -> list[FieldError]:
    found = messages(path, kind, names.is_qualified_name)
    if not found and "/" not in kind and kind not in ("Container", "Pod", "PersistentVolumeClaim"):
        found.append(invalid(path, kind, "must be a standard limit type or fully qualified"))
    return found


def _validate_limit(path: FieldPath, item: JsonObject) -> Iterator[FieldError]:
    kind = item.get("type", "")
    fields = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    amounts = {field: get_object(item, field) for field in fields}
    rule = resource_name_problems if kind in ("Pod", "Container") else plain_name_problems
    for field, values in amounts.items():
        if kind == "Pod" and field in ("default", "defaultRequest"):
            if values:
                yield forbidden(path.child(field), "may not be specified when `type` is 'Pod'")
            continue
        bounded = amounts["max"].keys() | amounts["min"].keys()
        if field == "maxLimitRequestRatio" and kind == "PersistentVolumeClaim" and "storage" not in bounded:
            text = "either minimum or maximum storage value is required, but neither was provided"
            yield required(path.child("limits"), text)
        for name in sorted(values):
            yield from messages(path.child(field).key(name), name, rule)
    for name in sorted(set().union(*amounts.values())):
        yield from _validate_order({field: values.get(name) for field, values in amounts.items()}, name, path)


_ORDER = (
    ("min", "max", "min", "min value {0} is greater than max value {1}"),
    ("min", "defaultRequest", "defaultRequest", "min value {0} is greater than default request value {1}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {0} is greater than max value {1}"),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value {0} is greater than default limit value {1}",
    ),
    ("min", "default", "default", "min value {0} is greater than default value {1}"),
    ("default", "max", "default", "default value {0} is greater than max value {1}"),
)


def _validate_order(values: dict[str, Any], name: str, path: FieldPath) -> Iterator[FieldError]:
    for low, high, field, text in _ORDER:
        small, large = values[low], values[high]
        if small is not None and large is not None and amount(small) > amount(large):
            shown = small if field == low else large
            yield invalid(path.child(field).key(name), str(shown), text.format(small, large))
    at, ratio = path.child("maxLimitRequestRatio").key(name), values["maxLimitRequestRatio"]
    if ratio is not None and amount(ratio).milli_value < 1000:
        yield invalid(at, str(ratio), f"ratio {ratio} is less than 1")
    if None not in (ratio, values["min"], values["max"]) and amount(values["min"]).milli_value:
        most = amount(values["max"]).milli_value / amount(values["min"]).milli_value
        if amount(ratio).milli_value / 1000 > most:
            yield invalid(at, str(ratio), f"ratio {ratio} is greater than max/min = {most:f}")
    default, request = values["default"], values["defaultRequest"]
    if None not in (default, request) and amount(default) != amount(request) and not may_overcommit(name):
        text = f"default value {default} must equal to defaultRequest value {request} in {name}"
        yield invalid(path.child("defaultRequest").key(name), str(request), text)


validate_limit_range = f.spec(
    f.may("limits", f.items(f.always("type", "", _limit_type), f.Once("type"), _validate_limit))
)
"""Each type once; min <= defaultRequest <= default <= max."""


class QuotaStrategy(BuiltinStrategy):
    """The hard limits of a namespace. The quota controller and admission write what is used of them."""

    returns_deleted_object = True
    tracks_generation = False
    rules = Rules(validate_quota, update=validate_quota_update, status=validate_quota_status)


class LimitRangeStrategy(BuiltinStrategy):
    """Limits of single pods, containers and claims."""

    has_status = False
    allow_create_on_update = True
    tracks_generation = False
    metadata_checks = (0, 1)
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
    quotas = p.Table(
        p.NAME,
        p.plain("Request", lambda obj: _usage(obj, limits=False)),
        p.plain("Limit", lambda obj: _usage(obj, limits=True)),
        p.AGE,
    )
    ranges = p.Table(p.NAME, p.CREATED_AT)
    return [
        builtin(RESOURCE_QUOTAS, QuotaStrategy(), short=("quota",), table=quotas),
        builtin(LIMIT_RANGES, LimitRangeStrategy(), short=("limits",), table=ranges),
    ]
