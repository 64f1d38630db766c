"""Scoring: points from 0 to 100 by several criteria, weighted and added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kindling.scheduler import node_rules, requests
from kindling.scheduler.pod_rules import SpreadRules
from kindling.scheduler.snapshot import NodeInfo, Snapshot
from kindling.scheduler.terms import PREFERRED, preferred_terms
from kubecore.json import JsonObject, get_list, get_object

TAINT_WEIGHT = 3
NODE_AFFINITY_WEIGHT = 2
SPREAD_WEIGHT = 2
POD_AFFINITY_WEIGHT = 2
FIT_WEIGHT = 1
BALANCE_WEIGHT = 1


def least_allocated(pod_needs: Mapping[str, int], info: NodeInfo) -> float:
    """More points for more free resources, averaged over cpu and memory."""
    return _mean(
        [
            100 * (capacity - used) / capacity if used <= capacity else 0.0
            for capacity, used in _usage(pod_needs, info)
        ]
    )


def balanced(pod_needs: Mapping[str, int], info: NodeInfo) -> float:
    """More points where cpu and memory would be used in equal parts."""
    # A pod that names its node may ask for more than a float can hold.
    fractions = [used / capacity if used < capacity else 1.0 for capacity, used in _usage(pod_needs, info)]
    return 100.0 if len(fractions) < 2 else 100 * (1 - abs(fractions[0] - fractions[1]) / 2)


def _usage(pod_needs: Mapping[str, int], info: NodeInfo) -> list[tuple[int, int]]:
    """Capacity and use of cpu and memory with the pod on the node."""
    needs = requests.at_least_defaults(pod_needs)
    return [
        (info.allocatable[name], info.in_use.get(name, 0) + needs[name])
        for name in needs
        if info.allocatable.get(name, 0) > 0
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def preferred_node_affinity(pod: JsonObject, info: NodeInfo) -> float:
    """The sum of the weights of preferred node affinity that the node satisfies."""
    terms = get_list(get_object(pod, "spec", "affinity", "nodeAffinity"), PREFERRED)
    return float(
        sum(
            term.get("weight", 0)
            for term in terms
            if not _is_empty(term) and node_rules.matches_term(get_object(term, "preference"), info.node)
        )
    )


def _is_empty(term: JsonObject) -> bool:
    preference = get_object(term, "preference")
    return not preference.get("matchExpressions") and not preference.get("matchFields")


def soft_taints(pod: JsonObject, info: NodeInfo) -> float:
    """How many ``PreferNoSchedule`` taints the pod does not tolerate."""
    return float(
        sum(node_rules.untolerated(pod, [taint], ("PreferNoSchedule",)) is not None for taint in info.taints)
    )


class PodAffinityScore:
    """Weights by topology, from the pod's preferences and those of the pods that are placed."""

    def __init__(self, pod: JsonObject, snapshot: Snapshot) -> None:
        self._weights: dict[tuple[str, str], float] = {}
        labels = snapshot.namespace_labels
        own = [(term, term.weight) for term in preferred_terms(pod, "podAffinity")]
        own += [(term, -term.weight) for term in preferred_terms(pod, "podAntiAffinity")]
        for info, placed in snapshot.pods():
            for term, weight in own:
                if term.selects(placed, labels):
                    self._add(info, term.topology_key, weight)
            for term, weight in snapshot.read(placed).attraction:
                if term.selects(pod, labels):
                    self._add(info, term.topology_key, weight)

    def _add(self, info: NodeInfo, key: str, weight: float) -> None:
        value = info.labels.get(key)
        if value is not None:
            self._weights[(key, value)] = self._weights.get((key, value), 0) + weight

    def score(self, info: NodeInfo) -> float:
        """The score of a node: the sum over its topologies."""
        return sum(self._weights.get(pair, 0.0) for pair in info.labels.items())


def _normalized(values: Sequence[float], *, reverse: bool = False) -> list[float]:
    """Values scaled to 0 to 100; equal values make no difference."""
    low, high = min(values), max(values)
    if high == low:
        return [100.0 if reverse else 0.0] * len(values)
    scaled = [100 * (value - low) / (high - low) for value in values]
    return [100 - value for value in scaled] if reverse else scaled


def scores(pod: JsonObject, nodes: Sequence[NodeInfo], snapshot: Snapshot) -> list[float]:
    """The points of `nodes`, in their order."""
    needs = requests.of_pod(pod)
    spread = SpreadRules(pod, snapshot, "ScheduleAnyway")
    affinity = PodAffinityScore(pod, snapshot)

    def view(function: Callable[[NodeInfo], float]) -> list[float]:
        return [function(info) for info in nodes]

    views: list[tuple[int, list[float]]] = [
        (FIT_WEIGHT, view(lambda info: least_allocated(needs, info))),
        (BALANCE_WEIGHT, view(lambda info: balanced(needs, info))),
        (NODE_AFFINITY_WEIGHT, _normalized(view(lambda info: preferred_node_affinity(pod, info)))),
        (TAINT_WEIGHT, _normalized(view(lambda info: soft_taints(pod, info)), reverse=True)),
        (SPREAD_WEIGHT, _normalized(view(spread.crowding), reverse=True)),
        (POD_AFFINITY_WEIGHT, _normalized(view(affinity.score))),
    ]
    return [sum(weight * values[index] for weight, values in views) for index in range(len(nodes))]
