"""Affinity and spread follow Kubernetes' rules for pods."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from virtplane.compute.apiserver.admission.response import Cause

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Weights, node terms and topology keys. Paths lack `affinity`, as users know them."""
    rules = get_object(spec, "affinity")
    yield from _node_affinity(f"{path}.nodeAffinity", get_object(rules, "nodeAffinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(f"{path}.{kind}", get_object(rules, kind))


def _node_affinity(path: str, rules: JsonObject) -> Iterator[Cause]:
    required = rules.get(_REQUIRED)
    if isinstance(required, dict):
        field = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = get_list(required, "nodeSelectorTerms")
        if not terms:
            yield Cause(f"{field}: Required value: must have at least one node selector term", field)
        for index, term in enumerate(terms):
            yield from _node_term(f"{field}[{index}]", term)
    for index, entry in enumerate(get_list(rules, _PREFERRED)):
        field = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(field, entry)
        yield from _node_term(f"{field}.preference", get_object(entry, "preference"))


def _node_term(path: str, term: JsonObject) -> Iterator[Cause]:
    for index, expression in enumerate(get_list(term, "matchExpressions")):
        field, values = f"{path}.matchExpressions[{index}]", get_list(expression, "values")
        operator = get_str(expression, "operator")
        if operator in ("In", "NotIn") and not values:
            yield Cause(
                f"{field}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                f"{field}.values",
            )
        if operator in ("Exists", "DoesNotExist") and values:
            yield Cause(
                f"{field}.values: Forbidden: may not be specified when `operator` is"
                " 'Exists' or 'DoesNotExist'",
                f"{field}.values",
            )
        if operator in ("Gt", "Lt") and len(values) != 1:
            yield Cause(
                f"{field}.values: Required value: must be specified single value"
                " when `operator` is 'Lt' or 'Gt'",
                f"{field}.values",
            )
        key = get_str(expression, "key")
        for problem in names.is_qualified_name(key):
            yield Cause(f'{field}.key: Invalid value: "{key}": {problem}', f"{field}.key")


def _pod_affinity(path: str, rules: JsonObject) -> Iterator[Cause]:
    for index, term in enumerate(get_list(rules, _REQUIRED)):
        yield from _pod_term(f"{path}.{_REQUIRED}[{index}]", term)
    for index, entry in enumerate(get_list(rules, _PREFERRED)):
        field = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(field, entry)
        yield from _pod_term(f"{field}.podAffinityTerm", get_object(entry, "podAffinityTerm"))


def _pod_term(path: str, term: JsonObject) -> Iterator[Cause]:
    key = get_str(term, "topologyKey")
    field = f"{path}.topologyKey"
    if not key:
        yield Cause(f"{field}: Required value: can not be empty", field)
        return
    for problem in names.is_qualified_name(key):
        yield Cause(f'{field}: Invalid value: "{key}": {problem}', field)


def _weight(path: str, entry: JsonObject) -> Iterator[Cause]:
    weight = entry.get("weight")
    if not isinstance(weight, int) or not 1 <= weight <= 100:
        field = f"{path}.weight"
        yield Cause(f"{field}: Invalid value: {weight}: must be in the range 1-100", field)


def topology_spread(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Skew, topology key and what happens when a constraint cannot be met."""
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(get_list(spec, "topologySpreadConstraints")):
        field = f"{path}.topologySpreadConstraints[{index}]"
        skew = constraint.get("maxSkew")
        if not isinstance(skew, int) or skew <= 0:
            yield Cause(
                f"{field}.maxSkew: Invalid value: {skew}: must be greater than zero", f"{field}.maxSkew"
            )
        key, action = get_str(constraint, "topologyKey"), get_str(constraint, "whenUnsatisfiable")
        if not key:
            yield Cause(f"{field}.topologyKey: Required value: can not be empty", f"{field}.topologyKey")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            yield Cause(
                f'{field}.whenUnsatisfiable: Unsupported value: "{action}":'
                ' supported values: "DoNotSchedule", "ScheduleAnyway"',
                f"{field}.whenUnsatisfiable",
            )
        if (key, action) in seen:
            yield Cause(
                f'{field}.{{topologyKey, whenUnsatisfiable}}: Duplicate value: "{{{key}, {action}}}"',
                f"{field}.{{topologyKey, whenUnsatisfiable}}",
            )
        seen.add((key, action))
