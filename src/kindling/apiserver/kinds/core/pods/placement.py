"""Where pods may run: node selectors, affinity, tolerations, spread constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TWO = "must be specified when `operator` is 'In' or 'NotIn'"
_NONE = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ONE = "must be specified single value when `operator` is 'Lt' or 'Gt'"
_ONE_FIELD = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
_EVERY_KEY = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
_NO_SELECTOR = "must not be specified when labelSelector is not set"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _toleration(path: FieldPath, toleration: JsonObject) -> Iterator[FieldError]:
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    effect, at = toleration.get("effect", ""), path.child("operator")
    if not toleration.get("key") and operator != "Exists":
        yield invalid(at, operator, _EVERY_KEY)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid(
            path.child("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )
    if operator in ("Equal", ""):
        yield from f.LABEL_VALUE(at, value)
    elif operator != "Exists":
        yield not_supported(at, operator, ["Equal", "Exists"])
    elif value:
        yield invalid(at, value, "value must be empty when `operator` is 'Exists'")


TOLERATIONS = f.items(f.may("key", f.QUALIFIED), _toleration, f.may("effect", f.choice(*EFFECTS)))
"""Tolerations of a pod or runtime class."""


def _expression(path: FieldPath, requirement: JsonObject) -> Iterator[FieldError]:
    operator, values, at = (
        requirement.get("operator", ""),
        get_list(requirement, "values"),
        path.child("values"),
    )
    match operator:
        case "In" | "NotIn":
            if not values:
                yield required(at, _TWO)
        case "Exists" | "DoesNotExist":
            if values:
                yield forbidden(at, _NONE)
        case "Gt" | "Lt":
            if len(values) != 1:
                yield required(at, _ONE)
        case _:
            yield invalid(path.child("operator"), operator, "not a valid selector operator")
    yield from f.QUALIFIED(path.child("key"), requirement.get("key", ""))
    if operator in ("In", "NotIn"):
        yield from f.items(f.LABEL_VALUE)(at, values)


def _field_expression(path: FieldPath, requirement: JsonObject) -> Iterator[FieldError]:
    operator, values, at = (
        requirement.get("operator", ""),
        get_list(requirement, "values"),
        path.child("values"),
    )
    if operator not in ("In", "NotIn"):
        yield invalid(path.child("operator"), operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(at, _ONE_FIELD)
    if requirement.get("key") != "metadata.name":
        yield invalid(path.child("key"), requirement.get("key", ""), "not a valid field selector key")
    else:
        yield from f.items(f.SUBDOMAIN)(at, values)


_NODE_TERM = f.within(
    f.may("matchExpressions", f.items(_expression)),
    f.may("matchFields", f.items(_field_expression)),
)
NODE_SELECTOR = f.within(
    f.must("nodeSelectorTerms", f.items(_NODE_TERM), detail="must have at least one node selector term")
)
"""A node selector (required node affinity, or a volume's)."""


def _keys(name: str) -> f.Row:
    """Keys of labels, which mean something beside a label selector."""
    return f.within(
        f.when(lambda term: term.get("labelSelector") is None, f.never(_NO_SELECTOR, name)),
        f.when(lambda term: term.get("labelSelector") is not None, f.may(name, f.items(f.QUALIFIED))),
    )


def _key_conflicts(path: FieldPath, term: JsonObject) -> Iterator[FieldError]:
    """Keys that the selector names as well (besides the requirement that the server made of them)."""
    keys, others = get_list(term, "matchLabelKeys"), get_list(term, "mismatchLabelKeys")
    seen = set(get_object(term, "labelSelector", "matchLabels"))
    for requirement in get_list(term, "labelSelector", "matchExpressions"):
        key = requirement.get("key")
        if key in keys and key in seen:
            yield invalid(path.index(keys.index(key)), key, f"{_BOTH} labelSelector")
        seen.add(key)
    for position, key in enumerate(keys):
        if key in others:
            yield invalid(path.child("matchLabelKeys").index(position), key, f"{_BOTH} mismatchLabelKeys")


_BOTH = "exists in both matchLabelKeys and"


def merge_label_keys(pod: JsonObject) -> None:
    """Turn the keys of a new pod's affinity and spread into requirements for the pod's own labels."""
    labels, spec = get_object(pod, "metadata", "labels"), get_object(pod, "spec")
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = get_object(spec, "affinity", kind)
        for term in get_list(rules, _REQUIRED):
            _merge(term, labels)
        for weighted in get_list(rules, _PREFERRED):
            _merge(get_object(weighted, "podAffinityTerm"), labels)
    for constraint in get_list(spec, "topologySpreadConstraints"):
        _merge(constraint, labels)


def _merge(term: JsonObject, labels: JsonObject) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in get_list(term, field):
            if key in labels:
                requirement = {"key": key, "operator": operator, "values": [labels[key]]}
                selector["matchExpressions"] = [*get_list(selector, "matchExpressions"), requirement]


def _namespaces(path: FieldPath, term: JsonObject) -> Iterator[FieldError]:
    for namespace in get_list(term, "namespaces"):
        yield from f.LABEL(path.child("namespace"), namespace)


_WEIGHT = f.always("weight", 0, f.between(1, 100, "must be in the range 1-100"))
_POD_TERM = f.within(
    f.given("labelSelector", f.selector),
    f.given("namespaceSelector", f.selector),
    _namespaces,
    _keys("matchLabelKeys"),
    _keys("mismatchLabelKeys"),
    _key_conflicts,
    f.must("topologyKey", detail="can not be empty"),
    f.always("topologyKey", "", f.QUALIFIED),
)
_POD_AFFINITY = f.within(
    f.may(_REQUIRED, f.items(_POD_TERM)),
    f.may(_PREFERRED, f.items(_WEIGHT, f.part("podAffinityTerm", _POD_TERM))),
)
AFFINITY = f.within(
    f.given(
        "nodeAffinity",
        f.given(_REQUIRED, NODE_SELECTOR),
        f.may(_PREFERRED, f.items(_WEIGHT, f.part("preference", _NODE_TERM))),
    ),
    f.given("podAffinity", _POD_AFFINITY),
    f.given("podAntiAffinity", _POD_AFFINITY),
)
"""Affinity to nodes, to pods and against pods."""


def _min_domains(path: FieldPath, constraint: JsonObject) -> Iterator[FieldError]:
    domains, action = constraint.get("minDomains"), constraint.get("whenUnsatisfiable")
    if domains is not None and action != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid(path.child("minDomains"), domains, text)


_POSITIVE = f.at_least(1, "must be greater than zero")
_SPREAD_HEAD = f.within(
    f.always("maxSkew", 0, _POSITIVE),
    f.must("topologyKey", f.QUALIFIED, detail="can not be empty"),
    f.always("whenUnsatisfiable", "", f.choice("DoNotSchedule", "ScheduleAnyway")),
)
_SPREAD_TAIL = f.within(
    f.given("minDomains", _POSITIVE),
    _min_domains,
    f.given("nodeAffinityPolicy", f.choice("Honor", "Ignore")),
    f.given("nodeTaintsPolicy", f.choice("Honor", "Ignore")),
    _keys("matchLabelKeys"),
    _key_conflicts,
    f.given("labelSelector", f.selector),
)


def spread_constraints(path: FieldPath, constraints: Sequence[JsonObject]) -> Iterator[FieldError]:
    """Topology spread constraints of a pod: of equal ones, the first is told that it comes again."""
    keys = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    for position, constraint in enumerate(constraints):
        here, key = path.index(position), keys[position]
        yield from _SPREAD_HEAD(here, constraint)
        if key in keys[position + 1 :]:
            yield duplicate(here.child("{topologyKey, whenUnsatisfiable}"), f"{{{key[0]}, {key[1]}}}")
        yield from _SPREAD_TAIL(here, constraint)


_TAINT = f.within(
    f.always("key", "", f.QUALIFIED),
    f.always("value", "", f.LABEL_VALUE),
    f.must("effect", f.choice(*EFFECTS)),
)
_INTERNAL_TAINT = {"Key": "", "Value": "", "Effect": "", "TimeAdded": None}


def validate_taints(path: FieldPath, taints: Sequence[JsonObject]) -> Iterator[FieldError]:
    """Taints of a node."""
    seen: set[tuple[Any, Any]] = set()
    for position, taint in enumerate(taints):
        here = path.index(position)
        yield from _TAINT(here, taint)
        key = taint.get("key"), taint.get("effect")
        if key in seen:
            shown = internal_form(taint, _INTERNAL_TAINT)
            yield duplicate(here, shown, "taints must be unique by key and effect pair")
        seen.add(key)
