"""What pods ask for, and what nodes have left for them: cpu in thousandths, all else in units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.objects.selectors import SelectorError, from_label_selector_object

Amounts = Mapping[str, int]


def amounts(quantities: JsonObject) -> dict[str, int]:
    """Quantities as numbers; those that nobody can read count as nothing."""
    found: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            quantity = Quantity.parse(text)
        except ValueError:
            continue
        found[name] = quantity.milli_value if name == "cpu" else quantity.value
    return found


def _added(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _largest(left: Amounts, right: Amounts) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def requests(pod: JsonObject) -> dict[str, int]:
    """What a pod asks of its node, as the scheduler counts it: restartable init containers run beside the
    containers, every other init container with those before it only.
    """

    def of(container: JsonObject) -> dict[str, int]:
        return amounts(get_object(container, "resources", "requests"))

    running: dict[str, int] = {}
    for container in get_list(pod, "spec", "containers"):
        running = _added(running, of(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in get_list(pod, "spec", "initContainers"):
        if container.get("restartPolicy") == "Always":
            sidecars = _added(sidecars, of(container))
            starting = _largest(starting, sidecars)
        else:
            starting = _largest(starting, _added(sidecars, of(container)))
    total = _largest(_added(running, sidecars), starting)
    total |= amounts(get_object(pod, "spec", "resources", "requests"))
    return _added(total, amounts(get_object(pod, "spec", "overhead")))


@dataclass(frozen=True, slots=True)
class Node:
    """A node and what is left of it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[JsonObject, ...]
    is_cordoned: bool
    is_ready: bool
    allocatable: Amounts
    free: Amounts

    def is_open_for(self, pod: JsonObject) -> bool:
        """Whether it would take the pod if it had the room: labels, affinity to nodes, taints."""
        wanted = get_object(pod, "spec", "nodeSelector")
        return (
            self.is_ready
            and not self.is_cordoned
            and all(self.labels.get(key) == value for key, value in wanted.items())
            and self.is_wanted(pod)
            and not self.repels(pod)
        )

    def repels(self, pod: JsonObject) -> list[JsonObject]:
        """Its taints that keep the pod off."""
        tolerations = get_list(pod, "spec", "tolerations")
        hard = [each for each in self.taints if each.get("effect") in ("NoSchedule", "NoExecute")]
        return [taint for taint in hard if not any(_tolerates(one, taint) for one in tolerations)]

    def is_wanted(self, pod: JsonObject) -> bool:
        """Whether the affinity that the pod requires to nodes names it."""
        affinity = get_object(pod, "spec", "affinity", "nodeAffinity")
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return required is None or self.is_selected(required)

    def is_selected(self, selector: JsonObject) -> bool:
        """Whether a node selector's terms, of which one is enough, name it by its labels."""
        terms = get_list(selector, "nodeSelectorTerms")
        return any(_all_match(get_list(term, "matchExpressions"), self.labels) for term in terms)

    def lacks(self, wanted: Amounts) -> list[str]:
        """The resources of which it has less left than wanted."""
        return [name for name, count in sorted(wanted.items()) if count > max(0, self.free.get(name, 0))]


def _all_match(expressions: list[JsonObject], labels: Mapping[str, str]) -> bool:
    """Requirements that no label selector has (greater, less) count as met: this is a forecast."""
    for expression in expressions:
        try:
            if not from_label_selector_object({"matchExpressions": [expression]}).matches(labels):
                return False
        except SelectorError:
            continue
    return True


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint.get("key") and same_value


def nodes(documents: Iterable[JsonObject], pods: Iterable[JsonObject]) -> tuple[Node, ...]:
    """The nodes, without what their `pods` take that have not ended."""
    taken: dict[str, dict[str, int]] = defaultdict(dict)
    for pod in pods:
        name = get_str(pod, "spec", "nodeName")
        if name and get_str(pod, "status", "phase") not in ("Succeeded", "Failed"):
            taken[name] = _added(_added(taken[name], requests(pod)), {"pods": 1})
    return tuple(_node(document, taken[meta.name(document)]) for document in documents)


def _node(document: JsonObject, taken: Amounts) -> Node:
    allocatable = amounts(get_object(document, "status", "allocatable"))
    ready = meta.get_condition(document, "Ready")
    return Node(
        meta.name(document),
        meta.labels(document),
        tuple(get_list(document, "spec", "taints")),
        bool(get_object(document, "spec").get("unschedulable")),
        ready is not None and ready.get("status") == "True",
        allocatable,
        {name: count - taken.get(name, 0) for name, count in allocatable.items()},
    )
