"""Where pods may run: node selectors, affinity, tolerations, spread constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindling.apiserver.kinds.machinery.checks import messages, one_of
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, must, named
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.selectors import validate_label_selector_object

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TWO = "must be specified when `operator` is 'In' or 'NotIn'"
_NONE = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ONE = "must be specified single value when `operator` is 'Lt' or 'Gt'"


def validate_tolerations(tolerations: Sequence[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    """Tolerations of a pod or runtime class."""
    for position, toleration in enumerate(tolerations):
        yield from _validate_toleration(toleration, path.index(position))


def _validate_toleration(toleration: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    yield from check_fields(toleration, path, may("key", named(names.is_qualified_name)))
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(path.child("operator"), operator, text)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(path.child("effect"), effect, text)
    if operator in ("Equal", ""):
        yield from messages(path.child("operator"), value, names.is_label_value)
    elif operator == "Exists":
        if value:
            yield invalid(path.child("operator"), value, "value must be empty when `operator` is 'Exists'")
    else:
        yield not_supported(path.child("operator"), operator, ["Equal", "Exists"])
    yield from check_fields(toleration, path, may("effect", choice(*EFFECTS)))


def validate_node_selector_requirement(
    requirement: JsonObject, path: FieldPath, *, fields: bool = False
) -> Iterator[FieldError]:
    """One expression of a node selector term (or, with `fields`, one about the node's own fields)."""
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    at = path.child("values")
    if fields:
        yield from _validate_field_requirement(requirement, path)
        return
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
    yield from messages(path.child("key"), requirement.get("key", ""), names.is_qualified_name)
    if operator in ("In", "NotIn"):
        for position, value in enumerate(values):
            yield from messages(at.index(position), value, names.is_label_value)


def _validate_field_requirement(requirement: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield invalid(path.child("operator"), operator, "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(path.child("values"), text)
    if requirement.get("key") != "metadata.name":
        yield invalid(path.child("key"), requirement.get("key", ""), "not a valid field selector key")
    else:
        for position, value in enumerate(values):
            yield from messages(path.child("values").index(position), value, names.is_dns1123_subdomain)


def validate_node_selector_term(term: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """All expressions of a term."""
    for position, requirement in enumerate(get_list(term, "matchExpressions")):
        yield from validate_node_selector_requirement(
            requirement, path.child("matchExpressions").index(position)
        )
    for position, requirement in enumerate(get_list(term, "matchFields")):
        at = path.child("matchFields").index(position)
        yield from validate_node_selector_requirement(requirement, at, fields=True)


def validate_node_selector(selector: JsonObject, path: FieldPath) -> list[FieldError]:
    """A node selector (required node affinity, or a volume's)."""
    terms = get_list(selector, "nodeSelectorTerms")
    at = path.child("nodeSelectorTerms")
    if not terms:
        return [required(at, "must have at least one node selector term")]
    return [
        error
        for position, term in enumerate(terms)
        for error in validate_node_selector_term(term, at.index(position))
    ]


def _weight(item: JsonObject, path: FieldPath) -> list[FieldError]:
    weight = item.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid(path.child("weight"), weight, "must be in the range 1-100")]


def validate_affinity(affinity: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Affinity to nodes, to pods and against pods."""
    node = affinity.get("nodeAffinity")
    if isinstance(node, dict):
        at = path.child("nodeAffinity")
        needed = node.get("requiredDuringSchedulingIgnoredDuringExecution")
        if isinstance(needed, dict):
            yield from validate_node_selector(
                needed, at.child("requiredDuringSchedulingIgnoredDuringExecution")
            )
        for position, item in enumerate(get_list(node, "preferredDuringSchedulingIgnoredDuringExecution")):
            here = at.child("preferredDuringSchedulingIgnoredDuringExecution").index(position)
            yield from _weight(item, here)
            yield from validate_node_selector_term(get_object(item, "preference"), here.child("preference"))
    for field in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(field)
        if isinstance(part, dict):
            yield from _validate_pod_affinity(part, path.child(field))


def _validate_pod_affinity(affinity: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    for position, term in enumerate(get_list(affinity, "requiredDuringSchedulingIgnoredDuringExecution")):
        here = path.child("requiredDuringSchedulingIgnoredDuringExecution").index(position)
        yield from _validate_pod_affinity_term(term, here)
    for position, item in enumerate(get_list(affinity, "preferredDuringSchedulingIgnoredDuringExecution")):
        here = path.child("preferredDuringSchedulingIgnoredDuringExecution").index(position)
        yield from _weight(item, here)
        yield from _validate_pod_affinity_term(
            get_object(item, "podAffinityTerm"), here.child("podAffinityTerm")
        )


def _validate_pod_affinity_term(term: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_label_selector_object(term.get("labelSelector"), path.child("labelSelector"))
    yield from validate_label_selector_object(term.get("namespaceSelector"), path.child("namespaceSelector"))
    for position, name in enumerate(get_list(term, "namespaces")):
        yield from messages(path.child("namespaces").index(position), name, names.is_dns1123_label)
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = get_list(term, field)
        if keys and term.get("labelSelector") is None:
            yield forbidden(path.child(field), "must not be specified when labelSelector is not set")
        for position, key in enumerate(keys):
            yield from messages(path.child(field).index(position), key, names.is_qualified_name)
    topology = term.get("topologyKey", "")
    if not topology:
        yield required(path.child("topologyKey"), "can not be empty")
    yield from messages(path.child("topologyKey"), topology, names.is_qualified_name)


def validate_spread_constraints(constraints: Sequence[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    """Topology spread constraints of a pod."""
    seen: set[tuple[Any, Any]] = set()
    for position, constraint in enumerate(constraints):
        here = path.index(position)
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            yield invalid(here.child("maxSkew"), skew, "must be greater than zero")
        topology = constraint.get("topologyKey", "")
        yield from check_fields(
            constraint, here, must("topologyKey", named(names.is_qualified_name), detail="can not be empty")
        )
        action = constraint.get("whenUnsatisfiable", "")
        yield from one_of(here.child("whenUnsatisfiable"), action, ("DoNotSchedule", "ScheduleAnyway"))
        yield from _validate_spread_options(constraint, here)
        key = (topology, action)
        if key in seen:
            yield duplicate(here.child("{topologyKey, whenUnsatisfiable}"), f"{{{topology}, {action}}}")
        seen.add(key)


def _validate_spread_options(constraint: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            yield invalid(path.child("minDomains"), domains, "must be greater than zero")
        if constraint.get("whenUnsatisfiable") != "DoNotSchedule":
            action = constraint.get("whenUnsatisfiable")
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            yield invalid(path.child("minDomains"), domains, text)
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        yield from check_fields(constraint, path, given(field, choice("Honor", "Ignore")))
    keys = get_list(constraint, "matchLabelKeys")
    if keys and constraint.get("labelSelector") is None:
        yield forbidden(path.child("matchLabelKeys"), "must not be specified when labelSelector is not set")
    for position, key in enumerate(keys):
        yield from messages(path.child("matchLabelKeys").index(position), key, names.is_qualified_name)
    yield from validate_label_selector_object(constraint.get("labelSelector"), path.child("labelSelector"))


def validate_taints(taints: Sequence[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    """Taints of a node."""
    seen: set[tuple[Any, Any]] = set()
    for position, taint in enumerate(taints):
        here = path.index(position)
        yield from messages(here.child("key"), taint.get("key", ""), names.is_qualified_name)
        yield from messages(here.child("value"), taint.get("value", ""), names.is_label_value)
        effect = taint.get("effect", "")
        yield from check_fields(taint, here, must("effect", choice(*EFFECTS)))
        key = (taint.get("key"), effect)
        if key in seen:
            yield duplicate(here, taint_dump(taint), "taints must be unique by key and effect pair")
        seen.add(key)


def taint_dump(taint: Mapping[str, Any]) -> JsonObject:
    """A taint in the server's internal spelling, as messages show it."""
    return {
        "Key": taint.get("key", ""),
        "Value": taint.get("value", ""),
        "Effect": taint.get("effect", ""),
        "TimeAdded": taint.get("timeAdded"),
    }
