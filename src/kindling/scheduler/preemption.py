"""Preemption: the node, and the pods of lower priority to delete from it, so that a pod fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kindling.scheduler.filters import Filters
from kindling.scheduler.snapshot import NodeInfo, Snapshot
from kubecore.json import JsonObject, get_int, get_str
from kubecore.objects import meta


@dataclass(frozen=True, slots=True)
class Preemption:
    """The pods to delete from `node` so that the pod fits."""

    node: str
    victims: tuple[JsonObject, ...]


def priority(pod: JsonObject) -> int:
    """The pod's priority."""
    return get_int(pod, "spec", "priority")


def find(pod: JsonObject, snapshot: Snapshot, candidates: Iterable[NodeInfo]) -> Preemption | None:
    """The node whose victims matter least: those with the lowest maximum priority, then the smallest number.

    `candidates` are the nodes that refused the pod for reasons that removing pods can clear.
    """
    nodes = list(candidates)
    if get_str(pod, "spec", "preemptionPolicy") == "Never" or _is_room_coming(pod, nodes):
        return None
    found = [Preemption(info.name, victims) for info in nodes if (victims := _victims(pod, snapshot, info))]
    return min(
        found,
        key=lambda each: (
            max(priority(victim) for victim in each.victims),
            sum(priority(victim) for victim in each.victims),
            len(each.victims),
            each.node,
        ),
        default=None,
    )


def _is_room_coming(pod: JsonObject, nodes: Iterable[NodeInfo]) -> bool:
    """Whether pods of lower priority are already terminating there, which may make enough room."""
    return any(
        meta.is_being_deleted(placed) and priority(placed) < priority(pod)
        for info in nodes
        for placed in info.pods
    )


def _victims(pod: JsonObject, snapshot: Snapshot, info: NodeInfo) -> tuple[JsonObject, ...]:
    """The fewest of the node's pods of lower priority without which the pod fits; none if it never does."""
    lesser = [placed for placed in info.pods if priority(placed) < priority(pod)]
    if not lesser or not _fits(pod, snapshot, info, lesser):
        return ()
    victims = list(lesser)
    # Reprieve victims, the most important and oldest first, as long as the pod still fits.
    for placed in sorted(lesser, key=lambda each: (-priority(each), meta.creation_timestamp(each))):
        without = [victim for victim in victims if victim is not placed]
        if _fits(pod, snapshot, info, without):
            victims = without
    return tuple(victims)


def _fits(pod: JsonObject, snapshot: Snapshot, info: NodeInfo, gone: list[JsonObject]) -> bool:
    cleared = NodeInfo(info.node, allocatable=info.allocatable)
    for placed in info.pods:
        if not any(placed is victim for victim in gone):
            cleared.add(placed, snapshot.read(placed).needs)
    nodes = [cleared if other is info else other for other in snapshot.nodes]
    reduced = Snapshot(nodes, snapshot.namespace_labels, snapshot.volumes, snapshot.read)
    return Filters(pod, reduced).check(cleared) is None
