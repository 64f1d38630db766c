"""Admission of pods by the node. The scheduler does not check a pod that names its node itself.

Pure functions. Extended resources are not checked here: allocating their devices fails when too few are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kindling.node.eviction.ranking import is_critical
from kindling.node.pods.ending import EVICTED
from kindling.node.pods.resources import qos_class
from kindling.scheduler import node_rules, requests
from kubecore.json import JsonObject, get_list

_COUNTED = ("cpu", "memory", "ephemeral-storage")
_MEMORY_TAINT = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
_NO_PORTS = "node(s) didn't have free ports for the requested pod ports"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the node rejects a pod; the text goes into the pod's event and status."""

    reason: str
    message: str

    @property
    def status_message(self) -> str:
        """The message of the pod's status."""
        return f"Pod was rejected: {self.message}"


def refusal(
    pod: JsonObject,
    others: Iterable[JsonObject],
    allocatable: Mapping[str, str],
    pressure: Sequence[str] = (),
) -> Refusal | None:
    """Why the node cannot run `pod` in addition to the `others`; None when it can. `pressure` are the node's
    conditions.
    """
    if pressure and not _bears(pod, pressure):
        return Refusal(EVICTED, f"The node had condition: [{' '.join(pressure)}]. ")
    beside = list(others)
    capacity = requests.parse_amounts(allocatable)
    allowed = capacity.get(requests.PODS_RESOURCE)
    if allowed is not None and len(beside) + 1 > allowed:
        return _out_of(requests.PODS_RESOURCE, 1, len(beside), allowed)
    wanted = requests.of_pod(pod)
    used: Mapping[str, int] = {}
    for other in beside:
        used = requests.add(used, requests.of_pod(other))
    for name in _COUNTED:
        amount, taken = wanted.get(name, 0), used.get(name, 0)
        if name in capacity and amount > 0 and amount > capacity[name] - taken:
            return _out_of(name, amount, taken, capacity[name])
    taken_ports = [port for other in beside for port in requests.host_ports(other)]
    if requests.ports_conflict(requests.host_ports(pod), taken_ports):
        return Refusal("NodePorts", f"Predicate NodePorts failed: {_NO_PORTS}")
    return None


def _bears(pod: JsonObject, pressure: Sequence[str]) -> bool:
    """Whether the pod may start under pressure: critical ones may, and where memory alone is scarce all that
    request some, or tolerate it.
    """
    if is_critical(pod):
        return True
    if list(pressure) != ["MemoryPressure"]:
        return False
    tolerations = get_list(pod, "spec", "tolerations")
    return qos_class(pod) != "BestEffort" or any(
        node_rules.tolerates(each, _MEMORY_TAINT) for each in tolerations
    )


def _out_of(name: str, requested: int, used: int, capacity: int) -> Refusal:
    amounts = f"requested: {requested}, used: {used}, capacity: {capacity}"
    return Refusal(f"OutOf{name}", f"Node didn't have enough resource: {name}, {amounts}")
