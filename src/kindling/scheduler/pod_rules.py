"""Rules between pods: affinity, anti-affinity and topology spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kindling.scheduler import node_rules
from kindling.scheduler.snapshot import NodeInfo, Snapshot
from kindling.scheduler.terms import MOST_VALUES, Term, required_terms, with_pod_labels
from kubecore.json import JsonObject, get_list, get_object, has_more_values
from kubecore.objects import meta
from kubecore.objects.selectors import LabelSelector, from_label_selector_object

_RULES = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")


def are_too_many(pod: JsonObject) -> bool:
    """Whether a pod has more rules than are judged."""
    spec = get_object(pod, "spec")
    return has_more_values([spec[name] for name in _RULES if name in spec], MOST_VALUES)


class AffinityRules:
    """The required rules of one pod against all scheduled pods, counted once for all nodes."""

    def __init__(self, pod: JsonObject, snapshot: Snapshot) -> None:
        self._pod = pod
        self._namespaces = snapshot.namespace_labels
        self._affinity = required_terms(pod, "podAffinity")
        self._anti = required_terms(pod, "podAntiAffinity")
        self._near = [self._topologies(term, snapshot) for term in self._affinity]
        self._far = [self._topologies(term, snapshot) for term in self._anti]
        self._refused: set[tuple[str, str]] = set()
        for info, placed in snapshot.pods():
            for term in snapshot.read(placed).anti_affinity:
                value = info.labels.get(term.topology_key)
                if value is not None and term.selects(pod, self._namespaces):
                    self._refused.add((term.topology_key, value))

    def _topologies(self, term: Term, snapshot: Snapshot) -> set[str]:
        return {
            info.labels[term.topology_key]
            for info, placed in snapshot.pods()
            if term.topology_key in info.labels and term.selects(placed, self._namespaces)
        }

    def refused_by_existing(self, node: NodeInfo) -> bool:
        """Whether the anti-affinity of a scheduled pod excludes this pod."""
        return any((key, value) in self._refused for key, value in node.labels.items())

    def affinity_fails(self, node: NodeInfo) -> bool:
        """Whether required affinity is not met. The first pod of a group with affinity to itself fits."""
        if any(term.topology_key not in node.labels for term in self._affinity):
            return True
        near = all(
            node.labels[term.topology_key] in found
            for term, found in zip(self._affinity, self._near, strict=True)
        )
        if near:
            return False
        starts_group = not any(self._near) and all(
            term.selects(self._pod, self._namespaces) for term in self._affinity
        )
        return not starts_group

    def anti_affinity_fails(self, node: NodeInfo) -> bool:
        """Whether a pod that the anti-affinity excludes is in the node's topology."""
        return any(
            node.labels.get(term.topology_key) in found
            for term, found in zip(self._anti, self._far, strict=True)
        )


@dataclass(slots=True)
class _Constraint:
    topology_key: str
    max_skew: int
    selector: LabelSelector
    min_domains: int
    honours_affinity: bool
    honours_taints: bool
    matches_self: bool
    counts: Counter[str] = field(default_factory=Counter)
    domains: set[str] = field(default_factory=set)


class SpreadRules:
    """The topology spread constraints of one pod, of one kind: ``DoNotSchedule`` or ``ScheduleAnyway``."""

    def __init__(self, pod: JsonObject, snapshot: Snapshot, when_unsatisfiable: str) -> None:
        self._pod = pod
        self.constraints = [
            self._constraint(raw)
            for raw in get_list(pod, "spec", "topologySpreadConstraints")
            if raw.get("whenUnsatisfiable") == when_unsatisfiable
        ]
        for constraint in self.constraints:
            self._count(constraint, snapshot.nodes)

    def _constraint(self, raw: JsonObject) -> _Constraint:
        selector = from_label_selector_object(with_pod_labels(raw, self._pod))
        return _Constraint(
            raw.get("topologyKey", ""),
            raw.get("maxSkew", 1),
            selector,
            raw.get("minDomains") or 1,
            raw.get("nodeAffinityPolicy", "Honor") == "Honor",
            raw.get("nodeTaintsPolicy", "Ignore") == "Honor",
            selector.matches(meta.labels(self._pod)),
        )

    def _count(self, constraint: _Constraint, nodes: Iterable[NodeInfo]) -> None:
        namespace = meta.namespace(self._pod)
        for info in nodes:
            if not self._counts_node(constraint, info):
                continue
            value = info.labels[constraint.topology_key]
            constraint.domains.add(value)
            constraint.counts[value] += sum(
                meta.namespace(placed) == namespace
                and not meta.is_being_deleted(placed)
                and constraint.selector.matches(meta.labels(placed))
                for placed in info.pods
            )

    def _counts_node(self, constraint: _Constraint, info: NodeInfo) -> bool:
        if any(other.topology_key not in info.labels for other in self.constraints):
            return False
        if constraint.honours_affinity and not node_rules.matches_affinity(self._pod, info.node):
            return False
        effects = ("NoSchedule", "NoExecute")
        return not constraint.honours_taints or not node_rules.untolerated(self._pod, info.taints, effects)

    def lacks_label(self, node: NodeInfo) -> bool:
        """Whether the node lacks the topology label of a constraint."""
        return any(constraint.topology_key not in node.labels for constraint in self.constraints)

    def skew_fails(self, node: NodeInfo) -> bool:
        """Whether a constraint would be broken on that node."""
        for constraint in self.constraints:
            lowest = min((constraint.counts[domain] for domain in constraint.domains), default=0)
            if len(constraint.domains) < constraint.min_domains:
                lowest = 0
            value = node.labels.get(constraint.topology_key, "")
            if constraint.counts[value] + constraint.matches_self - lowest > constraint.max_skew:
                return True
        return False

    def crowding(self, node: NodeInfo) -> float:
        """The number of matching pods in the node's domains, summed over all constraints."""
        return float(
            sum(
                constraint.counts[node.labels[constraint.topology_key]]
                for constraint in self.constraints
                if constraint.topology_key in node.labels
            )
        )
