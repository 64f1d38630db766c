"""The quality-of-service class of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.quantity import Quantity

_COMPUTE = ("cpu", "memory")


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort, from the requests and limits of cpu and memory.

    Resources of the pod as a whole decide alone where they are given.
    """
    parts = list(_resources(spec))
    requested = {name for part in parts for name in _positive(part.get("requests"))}
    limited = {name for part in parts for name in _positive(part.get("limits"))}
    if not requested and not limited:
        return "BestEffort"
    guaranteed = all(
        len(_positive(part.get("limits"))) == len(_COMPUTE)
        and all(_equal(part, name) for name in _positive(part.get("requests")))
        for part in parts
    )
    return "Guaranteed" if guaranteed and requested == limited else "Burstable"


def _resources(spec: JsonObject) -> Iterator[JsonObject]:
    if get_object(spec, "resources"):
        yield get_object(spec, "resources")
        return
    for field in ("initContainers", "containers"):
        for container in get_list(spec, field):
            yield get_object(container, "resources")


def _positive(amounts: Any) -> set[str]:
    return {name for name in _COMPUTE if _amount((amounts or {}).get(name)) > Quantity.parse("0")}


def _amount(value: Any) -> Quantity:
    try:
        return Quantity.parse(value if value is not None else "0")
    except ValueError:
        return Quantity.parse("0")


def _equal(part: JsonObject, name: str) -> bool:
    return _amount(get_object(part, "requests").get(name)) == _amount(get_object(part, "limits").get(name))
