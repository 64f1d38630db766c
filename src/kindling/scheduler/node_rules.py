"""Rules between a pod and a single node: names, labels, taints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.selectors import SelectorError, from_label_selector_object, int64

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"


def matches_expression(expression: JsonObject, values: Mapping[str, str]) -> bool:
    """One requirement of a node selector term over labels (or fields)."""
    key, operator = expression.get("key", ""), expression.get("operator", "")
    wanted = expression.get("values") or []
    value = values.get(key)
    if operator in ("Gt", "Lt"):
        bound, number = int64(wanted[0]) if len(wanted) == 1 else None, int64(value or "")
        if bound is None or number is None:
            return False
        return number > bound if operator == "Gt" else number < bound
    try:
        return from_label_selector_object({"matchExpressions": [expression]}).matches(values)
    except SelectorError:
        return False


def matches_term(term: JsonObject, node: JsonObject) -> bool:
    """One term of a node selector; an empty term matches nothing."""
    expressions, fields = get_list(term, "matchExpressions"), get_list(term, "matchFields")
    if not expressions and not fields:
        return False
    field_values = {"metadata.name": meta.name(node)}
    return all(matches_expression(entry, meta.labels(node)) for entry in expressions) and all(
        _matches_field(entry, field_values) for entry in fields
    )


def _matches_field(expression: JsonObject, values: Mapping[str, str]) -> bool:
    # Field names are no label keys, and a label selector would refuse them.
    value = values.get(expression.get("key", ""))
    found = value in (expression.get("values") or [])
    return (
        found if expression.get("operator") == "In" else expression.get("operator") == "NotIn" and not found
    )


def matches_node_selector(selector: JsonObject, node: JsonObject) -> bool:
    """A node selector: any of its terms."""
    return any(matches_term(term, node) for term in get_list(selector, "nodeSelectorTerms"))


def matches_affinity(pod: JsonObject, node: JsonObject) -> bool:
    """``nodeSelector`` and required node affinity."""
    labels = meta.labels(node)
    wanted = get_object(pod, "spec", "nodeSelector")
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = get_object(pod, "spec", "affinity", "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or matches_node_selector(required, node)


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Whether one toleration is for that taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    value, wanted = taint.get("value") or "", toleration.get("value") or ""
    if operator == "Equal":
        return bool(key) and value == wanted
    number, bound = int64(value), int64(wanted)
    if operator not in ("Lt", "Gt") or number is None or bound is None:
        return False
    return number < bound if operator == "Lt" else number > bound


def untolerated(pod: JsonObject, taints: Iterable[JsonObject], effects: Iterable[str]) -> JsonObject | None:
    """The first taint of these effects that the pod does not tolerate."""
    tolerations = get_list(pod, "spec", "tolerations")
    chosen = set(effects)
    for taint in taints:
        if taint.get("effect") in chosen and not any(tolerates(entry, taint) for entry in tolerations):
            return taint
    return None


def tolerates_unschedulable(pod: JsonObject) -> bool:
    """Whether the pod may go to cordoned nodes, as those of daemon sets do."""
    taint = {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
    return any(tolerates(entry, taint) for entry in get_list(pod, "spec", "tolerations"))


def names_node(pod: JsonObject, name: str) -> bool:
    """Whether spec.nodeName is empty or this node."""
    wanted = get_str(pod, "spec", "nodeName")
    return not wanted or wanted == name
