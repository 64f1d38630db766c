"""Scheduling one pod: a node and the binding of its claims, or why the pod is unschedulable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kindling.scheduler import pod_rules
from kindling.scheduler.device_rules import NOTHING_TO_CLAIM
from kindling.scheduler.filters import Filters, Refusal
from kindling.scheduler.preemption import Preemption, find
from kindling.scheduler.scoring import scores
from kindling.scheduler.snapshot import NodeInfo, Snapshot
from kindling.scheduler.terms import MOST_VALUES
from kindling.scheduler.volume_rules import Binding
from kubecore.json import JsonObject

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Placement:
    """The pod goes to `node`, after `binding` is done."""

    node: str
    binding: Binding = field(default_factory=Binding)


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node fits the pod; `message` is what users read.

    With `preemption`, room can be made for it.
    """

    message: str
    preemption: Preemption | None = None


def decide(
    pod: JsonObject, snapshot: Snapshot, choose: Callable[[Sequence[NodeInfo]], NodeInfo] | None = None
) -> Placement | Unschedulable:
    """Where `pod` goes. Of equally good nodes `choose` takes one (default: the first)."""
    if not snapshot.nodes:
        return Unschedulable("no nodes available to schedule pods")
    if pod_rules.are_too_many(pod):
        text = f"the pod's affinity, tolerations and spread constraints have more than {MOST_VALUES}"
        return Unschedulable(f"0/{len(snapshot.nodes)} nodes are available: {text} values.")
    filters = Filters(pod, snapshot)
    if problem := filters.volumes.problem or filters.devices.problem:
        everywhere = Counter({NOT_HELPFUL: len(snapshot.nodes)})
        return Unschedulable(_message(len(snapshot.nodes), problem, everywhere, filters.devices.hope))
    refusals: list[Refusal] = []
    possible: list[NodeInfo] = []
    for info in snapshot.nodes:
        refusal = filters.check(info)
        if refusal is None:
            possible.append(info)
        else:
            refusals.append(refusal)
    if not possible:
        hopeful = [info for info, refusal in zip(snapshot.nodes, refusals, strict=True) if refusal.may_clear]
        preemption = find(pod, snapshot, hopeful)
        message = explain(refusals, with_hopes=preemption is None, devices=filters.devices.hope)
        return Unschedulable(message, preemption)
    points = scores(pod, possible, snapshot)
    best = max(points)
    winners = [info for info, value in zip(possible, points, strict=True) if value == best]
    chosen = choose(winners) if choose else winners[0]
    return Placement(chosen.name, filters.volumes.binding(chosen) or Binding())


def explain(refusals: Sequence[Refusal], *, with_hopes: bool = True, devices: str = NOTHING_TO_CLAIM) -> str:
    """The message of an unschedulable pod: each reason with the number of nodes that have it.

    `with_hopes` adds why preemption does not help, after what freeing claimed `devices` would do.
    """
    reasons = Counter(reason for refusal in refusals for reason in refusal.reasons)
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    if not with_hopes:
        return f"0/{len(refusals)} nodes are available: {', '.join(parts)}."
    hopes = Counter(NO_VICTIMS if refusal.may_clear else NOT_HELPFUL for refusal in refusals)
    return _message(len(refusals), ", ".join(parts), hopes, devices)


def _message(nodes: int, reasons: str, hopes: Counter[str], devices: str) -> str:
    preemption = ", ".join(sorted(f"{count} {text}" for text, count in hopes.items()))
    return (
        f"0/{nodes} nodes are available: {reasons}. {devices}, "
        f"preemption: 0/{nodes} nodes are available: {preemption}."
    )
