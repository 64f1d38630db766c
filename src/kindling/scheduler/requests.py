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


def of_placed_pod(pod: JsonObject) -> Amounts:
    """What a pod takes of its node.

    While it is resized, that is the larger of what it has and what it wants; once its node has called the
    resize infeasible, it is what it has.
    """
    actual = _actual(pod)
    if not actual:
        return of_pod(pod)
    conditions = get_list(pod, "status", "conditions")
    infeasible = any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible" for each in conditions
    )
    spec = dict(get_object(pod, "spec"))
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [
                _with_requests(item, actual.get(str(item.get("name"))), infeasible=infeasible)
                for item in get_list(spec, kind)
            ]
    return of_pod({**pod, "spec": spec})


def _actual(pod: JsonObject) -> dict[str, JsonObject]:
    """The requests with which containers run, by container."""
    statuses = get_list(pod, "status", "containerStatuses") + get_list(pod, "status", "initContainerStatuses")
    return {
        str(status.get("name")): found
        for status in statuses
        if (found := get_object(status, "resources", "requests") or get_object(status, "allocatedResources"))
    }


def _with_requests(container: JsonObject, actual: JsonObject | None, *, infeasible: bool) -> JsonObject:
    wanted = get_object(container, "resources", "requests")
    if actual is None or actual == wanted:
        return container
    amounts = dict(actual) if infeasible else {**actual, **wanted}
    if not infeasible:
        for name, amount in actual.items():
            if name in wanted and Quantity.parse(amount) > Quantity.parse(wanted[name]):
                amounts[name] = amount
    return {**container, "resources": {"requests": amounts}}


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
