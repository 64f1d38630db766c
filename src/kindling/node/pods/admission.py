"""Admission of pods by the node. The scheduler does not check a pod that names its node itself.

Pure functions. Extended resources are not checked here: allocating their devices fails when too few are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kindling.scheduler import requests
from kubecore.json import JsonObject

_COUNTED = ("cpu", "memory", "ephemeral-storage")
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


def refusal(pod: JsonObject, others: Iterable[JsonObject], allocatable: Mapping[str, str]) -> Refusal | None:
    """Why the node cannot run `pod` in addition to the `others`; None when it can."""
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


def _out_of(name: str, requested: int, used: int, capacity: int) -> Refusal:
    amounts = f"requested: {requested}, used: {used}, capacity: {capacity}"
    return Refusal(f"OutOf{name}", f"Node didn't have enough resource: {name}, {amounts}")
