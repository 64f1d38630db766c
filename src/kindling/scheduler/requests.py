"""Requests of pods: resources, and host ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.quantity import Quantity

Amounts: TypeAlias = dict[str, int]
"""Amounts by resource name: ``cpu`` in thousandths, everything else in units (bytes, pieces)."""

PODS_RESOURCE = "pods"


def parse_amounts(quantities: Mapping[str, object]) -> Amounts:
    """Quantities as amounts."""
    return {name: _amount(str(text), name == "cpu") for name, text in quantities.items()}


@lru_cache(maxsize=4096)
def _amount(text: str, in_thousandths: bool) -> int:
    quantity = Quantity.parse(text)
    return quantity.milli_value if in_thousandths else quantity.value


DEFAULTS: Mapping[str, int] = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a pod that asks for nothing is taken to use when nodes are compared, so that such pods spread too."""


def at_least_defaults(amounts: Mapping[str, int]) -> Amounts:
    """cpu and memory of a pod, with the defaults where it asks for nothing."""
    return {name: amounts.get(name) or default for name, default in DEFAULTS.items()}


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The sum, resource by resource."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def largest(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The maximum, resource by resource."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def of_pod(pod: JsonObject) -> Amounts:
    """The effective request of a pod.

    Containers and restartable init containers run together; every other init container runs with the
    restartable ones that started before it. Requests of the pod itself replace the sum, and the
    overhead of its runtime class comes on top.
    """
    return add(_effective(pod, "requests"), parse_amounts(get_object(pod, "spec", "overhead")))


def limits_of_pod(pod: JsonObject) -> Amounts:
    """The effective limits of a pod, summed up like its requests. A container without a limit adds none, and
    the overhead comes on top of what is limited.
    """
    limits = _effective(pod, "limits")
    overhead = parse_amounts(get_object(pod, "spec", "overhead"))
    return {name: amount + overhead.get(name, 0) for name, amount in limits.items()}


def _effective(pod: JsonObject, kind: str) -> Amounts:
    spec = get_object(pod, "spec")
    running: Amounts = {}
    for container in get_list(spec, "containers"):
        running = add(running, _of_container(container, kind))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in get_list(spec, "initContainers"):
        needs = _of_container(container, kind)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, needs)
            starting = largest(starting, sidecars)
        else:
            starting = largest(starting, add(sidecars, needs))
    total = largest(add(running, sidecars), starting)
    total.update(parse_amounts(get_object(spec, "resources", kind)))
    return total


def _of_container(container: JsonObject, kind: str) -> Amounts:
    return parse_amounts(get_object(container, "resources", kind))


HostPort: TypeAlias = tuple[str, str, int]
"""Address ("" means all), protocol and number."""


def host_ports(pod: JsonObject) -> list[HostPort]:
    """The ports of the host that a pod's containers take."""
    spec = get_object(pod, "spec")
    containers = [*get_list(spec, "containers"), *_restartable(spec)]
    return [
        (_address(port.get("hostIP", "")), port.get("protocol", "TCP"), port["hostPort"])
        for container in containers
        for port in get_list(container, "ports")
        if port.get("hostPort")
    ]


def _restartable(spec: JsonObject) -> Iterable[JsonObject]:
    return (item for item in get_list(spec, "initContainers") if item.get("restartPolicy") == "Always")


def _address(text: str) -> str:
    return "" if text in ("0.0.0.0", "::") else text


def ports_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Whether a wanted host port is in use; a port without hostIP conflicts with that port on every
    address.
    """
    taken = list(used)
    return any(
        protocol == other_protocol
        and number == other_number
        and (address == other or not address or not other)
        for address, protocol, number in wanted
        for other, other_protocol, other_number in taken
    )
