"""Terms of affinity and anti-affinity between pods, resolved for the pods that have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubecore.json import JsonObject, get_list, get_object, has_more_values
from kubecore.objects import meta
from kubecore.objects.selectors import LabelSelector, from_label_selector_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_VALUES = 1000
"""Values in the rules of a pod: those of every placed pod are compared with each that is to be scheduled."""


@dataclass(frozen=True, slots=True)
class Term:
    """One (anti-)affinity term, resolved for the pod that has it."""

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    weight: int = 0

    def selects(self, pod: JsonObject, namespace_labels: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the term is about that pod."""
        namespace = meta.namespace(pod)
        in_scope = namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespace_labels.get(namespace, {}))
        )
        return in_scope and self.selector.matches(meta.labels(pod))


def _term(raw: JsonObject, pod: JsonObject, weight: int = 0) -> Term:
    namespaces = frozenset(get_list(raw, "namespaces"))
    raw_selector = raw.get("namespaceSelector")
    if not namespaces and raw_selector is None:
        namespaces = frozenset({meta.namespace(pod)})
    return Term(
        raw.get("topologyKey", ""),
        from_label_selector_object(with_pod_labels(raw, pod)),
        namespaces,
        None if raw_selector is None else from_label_selector_object(raw_selector),
        weight,
    )


def with_pod_labels(raw: JsonObject, pod: JsonObject) -> JsonObject | None:
    """The selector, extended by the pod's own values of ``matchLabelKeys`` and ``mismatchLabelKeys``."""
    selector = raw.get("labelSelector")
    extra = []
    for field_name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in get_list(raw, field_name):
            if key in meta.labels(pod):
                extra.append({"key": key, "operator": operator, "values": [meta.labels(pod)[key]]})
    if selector is None or not extra:
        return selector
    return {**selector, "matchExpressions": [*get_list(selector, "matchExpressions"), *extra]}


def required_terms(pod: JsonObject, kind: str) -> list[Term]:
    """The required terms of ``podAffinity`` or ``podAntiAffinity``; none where they are too many."""
    return [_term(raw, pod) for raw in _raw_terms(pod, kind, REQUIRED)]


def preferred_terms(pod: JsonObject, kind: str) -> list[Term]:
    """The preferred terms of ``podAffinity`` or ``podAntiAffinity``, with their weights; none where they are
    too many.
    """
    return [
        _term(get_object(raw, "podAffinityTerm"), pod, raw.get("weight", 0))
        for raw in _raw_terms(pod, kind, PREFERRED)
    ]


def _raw_terms(pod: JsonObject, kind: str, when: str) -> list[JsonObject]:
    # Only pods that name their node themselves are placed with more.
    found = get_list(pod, "spec", "affinity", kind, when)
    return [] if found and has_more_values(found, MOST_VALUES) else found


def attraction(pod: JsonObject) -> tuple[tuple[Term, int], ...]:
    """The terms by which a placed pod draws others near, with weights; those of what repels are negative."""
    near = [(term, term.weight) for term in preferred_terms(pod, "podAffinity")]
    far = [(term, -term.weight) for term in preferred_terms(pod, "podAntiAffinity")]
    return (*near, *far, *((term, 1) for term in required_terms(pod, "podAffinity")))
