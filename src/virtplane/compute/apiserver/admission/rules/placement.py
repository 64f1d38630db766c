"""Affinity and spread follow Kubernetes' rules for pods."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import names
from virtplane.compute.apiserver.admission.response import Cause

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ONE_OR_MORE = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
_NONE = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_SINGLE = "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
_ONE_FIELD = (
    "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
)


def _wrong(path: str, problem: str) -> Cause:
    return Cause(f"{path}: {problem}", path)


def _invalid(path: str, value: str, problems: list[str]) -> Iterator[Cause]:
    for problem in problems:
        # KubeVirt counts characters of label keys and values, where Kubernetes counts bytes by now.
        yield _wrong(path, f'Invalid value: "{value}": {problem.replace(" bytes", " characters")}')


def affinity(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Weights, node terms, selectors and topology keys. Paths lack `affinity`, as users know them."""
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
            yield _wrong(field, "Required value: must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_term(f"{field}[{index}]", term)
    for index, entry in enumerate(get_list(rules, _PREFERRED)):
        field = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(field, entry)
        yield from _node_term(f"{field}.preference", get_object(entry, "preference"))


def _node_term(path: str, term: JsonObject) -> Iterator[Cause]:
    for index, expression in enumerate(get_list(term, "matchExpressions")):
        field, values = f"{path}.matchExpressions[{index}]", get_list(expression, "values")
        if get_str(expression, "operator") in ("Gt", "Lt"):
            if len(values) != 1:
                yield _wrong(f"{field}.values", _SINGLE)
        else:
            yield from _operator(field, expression)
        yield from _label_name(f"{field}.key", get_str(expression, "key"))
    for index, expression in enumerate(get_list(term, "matchFields")):
        field, values = f"{path}.matchFields[{index}]", get_list(expression, "values")
        operator, key = get_str(expression, "operator"), get_str(expression, "key")
        if operator not in ("In", "NotIn"):
            yield from _invalid(f"{field}.operator", operator, ["not a valid selector operator"])
        elif len(values) != 1:
            yield _wrong(f"{field}.values", _ONE_FIELD)
        if key != "metadata.name":
            yield from _invalid(f"{field}.key", key, ["not a valid field selector key"])
            continue
        for position, value in enumerate(values):
            yield from _invalid(f"{field}.values[{position}]", value, names.is_dns1123_subdomain(value))


def _operator(path: str, expression: JsonObject) -> Iterator[Cause]:
    operator, values = get_str(expression, "operator"), get_list(expression, "values")
    if operator in ("In", "NotIn"):
        if not values:
            yield _wrong(f"{path}.values", _ONE_OR_MORE)
    elif operator not in ("Exists", "DoesNotExist"):
        yield from _invalid(f"{path}.operator", operator, ["not a valid selector operator"])
    elif values:
        yield _wrong(f"{path}.values", _NONE)


def _label_name(path: str, name: str) -> Iterator[Cause]:
    yield from _invalid(path, name, names.is_qualified_name(name))


def _selector(path: str, selector: JsonObject) -> Iterator[Cause]:
    for key, value in get_object(selector, "matchLabels").items():
        yield from _label_name(f"{path}.matchLabels", key)
        yield from _invalid(f"{path}.matchLabels", value, names.is_label_value(value))
    for index, expression in enumerate(get_list(selector, "matchExpressions")):
        field = f"{path}.matchExpressions[{index}]"
        yield from _operator(field, expression)
        yield from _label_name(f"{field}.key", get_str(expression, "key"))
        for position, value in enumerate(get_list(expression, "values")):
            yield from _invalid(f"{field}.values[{position}]", value, names.is_label_value(value))


def _pod_affinity(path: str, rules: JsonObject) -> Iterator[Cause]:
    for index, term in enumerate(get_list(rules, _REQUIRED)):
        yield from _pod_term(f"{path}.{_REQUIRED}[{index}]", term)
    for index, entry in enumerate(get_list(rules, _PREFERRED)):
        field = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(field, entry)
        yield from _pod_term(f"{field}.podAffinityTerm", get_object(entry, "podAffinityTerm"))


def _pod_term(path: str, term: JsonObject) -> Iterator[Cause]:
    for key in ("labelSelector", "namespaceSelector"):
        yield from _selector(f"{path}.{key}", get_object(term, key))
    for name in get_list(term, "namespaces"):
        yield from _invalid(f"{path}.namespace", name, names.is_dns1123_label(name))
    key = get_str(term, "topologyKey")
    if not key:
        yield _wrong(f"{path}.topologyKey", "Required value: can not be empty")
    yield from _label_name(f"{path}.topologyKey", key)


def _weight(path: str, entry: JsonObject) -> Iterator[Cause]:
    weight = get_int(entry, "weight")
    if not 1 <= weight <= 100:
        yield _wrong(f"{path}.weight", f"Invalid value: {weight}: must be in the range 1-100")


def topology_spread(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Skew, topology key and what happens when a constraint cannot be met."""
    constraints = get_list(spec, "topologySpreadConstraints")
    pairs = [(get_str(entry, "topologyKey"), get_str(entry, "whenUnsatisfiable")) for entry in constraints]
    for index, constraint in enumerate(constraints):
        base = f"{path}.topologySpreadConstraints"
        field, skew = f"{base}[{index}]", get_int(constraint, "maxSkew")
        if skew <= 0:
            yield _wrong(f"{field}.maxSkew", f"Invalid value: {skew}: must be greater than zero")
        key, action = pairs[index]
        if key:
            yield from _label_name(f"{field}.topologyKey", key)
        else:
            yield _wrong(f"{field}.topologyKey", "Required value: can not be empty")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            yield _wrong(
                f"{field}.whenUnsatisfiable",
                f'Unsupported value: "{action}": supported values: "DoNotSchedule", "ScheduleAnyway"',
            )
        yield from _selector(f"{base}.labelSelector", get_object(constraint, "labelSelector"))
        if pairs[index] in pairs[index + 1 :]:
            yield _wrong(
                f"{field}.{{topologyKey, whenUnsatisfiable}}", f'Duplicate value: "{{{key}, {action}}}"'
            )
