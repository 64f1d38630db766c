"""Affinity and spread follow Kubernetes' rules for pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubecore.objects import names
from virtplane.api.affinity_v1 import (
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.meta_v1 import LabelSelector, LabelSelectorRequirement
from virtplane.serving.responses import Cause

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


def _invalid(path: str, value: str, problems: Sequence[str]) -> Iterator[Cause]:
    for problem in problems:
        # KubeVirt counts characters of label keys and values, where Kubernetes counts bytes by now.
        yield _wrong(path, f'Invalid value: "{value}": {problem.replace(" bytes", " characters")}')


def affinity(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Weights, node selector terms, selectors and topology keys. The paths lack `affinity`, as in
    KubeVirt.
    """
    rules = spec.affinity
    if rules is None:
        return
    if rules.node_affinity is not None:
        yield from _node_affinity(f"{path}.nodeAffinity", rules.node_affinity)
    if rules.pod_affinity is not None:
        yield from _pod_affinity(f"{path}.podAffinity", rules.pod_affinity)
    if rules.pod_anti_affinity is not None:
        yield from _pod_affinity(f"{path}.podAntiAffinity", rules.pod_anti_affinity)


def _node_affinity(path: str, rules: NodeAffinity) -> Iterator[Cause]:
    required = rules.required_during_scheduling_ignored_during_execution
    if required is not None:
        field = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not required.node_selector_terms:
            yield _wrong(field, "Required value: must have at least one node selector term")
        for index, term in enumerate(required.node_selector_terms):
            yield from _node_term(f"{field}[{index}]", term)
    for index, entry in enumerate(rules.preferred_during_scheduling_ignored_during_execution):
        field = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(field, entry.weight)
        yield from _node_term(f"{field}.preference", entry.preference)


def _node_term(path: str, term: NodeSelectorTerm) -> Iterator[Cause]:
    for index, expression in enumerate(term.match_expressions):
        field = f"{path}.matchExpressions[{index}]"
        if expression.operator in ("Gt", "Lt"):
            if len(expression.values) != 1:
                yield _wrong(f"{field}.values", _SINGLE)
        else:
            yield from _operator(field, expression)
        yield from _label_name(f"{field}.key", expression.key)
    for index, expression in enumerate(term.match_fields):
        field, values = f"{path}.matchFields[{index}]", expression.values
        operator, key = expression.operator, expression.key
        if operator not in ("In", "NotIn"):
            yield from _invalid(f"{field}.operator", operator, ["not a valid selector operator"])
        elif len(values) != 1:
            yield _wrong(f"{field}.values", _ONE_FIELD)
        if key != "metadata.name":
            yield from _invalid(f"{field}.key", key, ["not a valid field selector key"])
            continue
        for position, value in enumerate(values):
            yield from _invalid(f"{field}.values[{position}]", value, names.is_dns1123_subdomain(value))


def _operator(path: str, expression: NodeSelectorRequirement | LabelSelectorRequirement) -> Iterator[Cause]:
    operator, values = expression.operator, expression.values
    if operator in ("In", "NotIn"):
        if not values:
            yield _wrong(f"{path}.values", _ONE_OR_MORE)
    elif operator not in ("Exists", "DoesNotExist"):
        yield from _invalid(f"{path}.operator", operator, ["not a valid selector operator"])
    elif values:
        yield _wrong(f"{path}.values", _NONE)


def _label_name(path: str, name: str) -> Iterator[Cause]:
    yield from _invalid(path, name, names.is_qualified_name(name))


def _selector(path: str, selector: LabelSelector | None) -> Iterator[Cause]:
    if selector is None:
        return
    for key, value in selector.match_labels.items():
        yield from _label_name(f"{path}.matchLabels", key)
        yield from _invalid(f"{path}.matchLabels", value, names.is_label_value(value))
    for index, expression in enumerate(selector.match_expressions):
        field = f"{path}.matchExpressions[{index}]"
        yield from _operator(field, expression)
        yield from _label_name(f"{field}.key", expression.key)
        for position, value in enumerate(expression.values):
            yield from _invalid(f"{field}.values[{position}]", value, names.is_label_value(value))


def _pod_affinity(path: str, rules: PodAffinity | PodAntiAffinity) -> Iterator[Cause]:
    for index, term in enumerate(rules.required_during_scheduling_ignored_during_execution):
        yield from _pod_term(f"{path}.{_REQUIRED}[{index}]", term)
    for index, entry in enumerate(rules.preferred_during_scheduling_ignored_during_execution):
        field = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(field, entry.weight)
        yield from _pod_term(f"{field}.podAffinityTerm", entry.pod_affinity_term)


def _pod_term(path: str, term: PodAffinityTerm) -> Iterator[Cause]:
    yield from _selector(f"{path}.labelSelector", term.label_selector)
    yield from _selector(f"{path}.namespaceSelector", term.namespace_selector)
    for name in term.namespaces:
        yield from _invalid(f"{path}.namespace", name, names.is_dns1123_label(name))
    if not term.topology_key:
        yield _wrong(f"{path}.topologyKey", "Required value: can not be empty")
    yield from _label_name(f"{path}.topologyKey", term.topology_key)


def _weight(path: str, weight: int) -> Iterator[Cause]:
    if not 1 <= weight <= 100:
        yield _wrong(f"{path}.weight", f"Invalid value: {weight}: must be in the range 1-100")


def topology_spread(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Skew, topology key and what happens when a constraint cannot be met."""
    constraints = spec.topology_spread_constraints
    pairs = [(entry.topology_key, entry.when_unsatisfiable) for entry in constraints]
    for index, constraint in enumerate(constraints):
        base = f"{path}.topologySpreadConstraints"
        field, skew = f"{base}[{index}]", constraint.max_skew
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
        yield from _selector(f"{base}.labelSelector", constraint.label_selector)
        if pairs[index] in pairs[index + 1 :]:
            yield _wrong(
                f"{field}.{{topologyKey, whenUnsatisfiable}}", f'Duplicate value: "{{{key}, {action}}}"'
            )
