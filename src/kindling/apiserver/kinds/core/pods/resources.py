"""Requests and limits of containers and pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount, messages, quantity
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.quantity import Quantity

from .resource_claims import claim_names, used_claims

_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_PAGES = "hugepages-"
COUNTED_RESOURCES = frozenset(
    {
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
QUOTA_RESOURCES = COUNTED_RESOURCES | {
    "storage",
    "requests.storage",
    *(f"{part}{name}" for part in ("", "requests.", "limits.") for name in _STANDARD_RESOURCES),
}


def plain_name_problems(name: str) -> list[str]:
    """The errors of any resource name."""
    problems = names.is_qualified_name(name)
    if not problems and "/" not in name and name not in QUOTA_RESOURCES and "hugepages-" not in name:
        problems = ["must be a standard resource type or fully qualified"]
    return problems


def resource_name_errors(path: FieldPath, name: str) -> list[FieldError]:
    """The errors of a container's resource name."""
    return messages(path, name, resource_name_problems)


def resource_name_problems(name: str) -> list[str]:
    """The errors of a container's resource name."""
    problems = plain_name_problems(name)
    if "/" not in name:
        if name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
            problems.append("must be a standard resource for containers")
    elif "kubernetes.io/" not in name and (
        name.startswith("requests.") or names.is_qualified_name(f"requests.{name}")
    ):
        problems.append("doesn't follow extended resource name standard")
    return problems


def validate_resources(
    claims: Collection[str], path: FieldPath, resources: JsonObject
) -> Iterator[FieldError]:
    """What a container of a pod with these claims of devices asks for: devices, requests and limits."""
    yield from used_claims(path.child("claims"), get_list(resources, "claims"), claims)
    yield from _amounts(path, resources, resource_name_errors)


_NameRule = Callable[[FieldPath, str], Iterable[FieldError]]


def _amounts(path: FieldPath, resources: JsonObject, rule: _NameRule) -> Iterator[FieldError]:
    """Limits and requests of resources whose names follow `rule`."""
    limits, requests = get_object(resources, "limits"), get_object(resources, "requests")
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in sorted(amounts.items()):
            at = path.child(field).key(name)
            yield from rule(at, name)
            yield from quantity(at, value)
            yield from whole(at, name, value)
            if field == "limits":
                yield from _pages(at, name, value)
            if field == "requests" and name in limits:
                yield from _validate_against_limit(name, value, limits[name], path.child("requests"))
            elif field == "requests" and not may_overcommit(name):
                yield required(path.child("limits"), "Limit must be set for non overcommitable resources")
            if field == "requests":
                yield from _pages(at, name, value)
    asked = limits.keys() | requests.keys()
    if any(name.startswith(_PAGES) for name in asked) and not asked & {"cpu", "memory"}:
        yield forbidden(path, "HugePages require cpu or memory")


def _pages(path: FieldPath, name: str, value: Any) -> Iterator[FieldError]:
    """Huge pages come in whole pages."""
    if not name.startswith(_PAGES):
        return
    page, total = amount(name.removeprefix(_PAGES)), amount(value)
    if page.milli_value <= 0 or page.milli_value % 1000 or total.milli_value % page.milli_value:
        yield invalid(path, str(value), f"{value} is not positive integer multiple of {name}")


def validate_pod_resources(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """What all containers of a pod together ask for, and how it fits what each of them does."""
    resources, path = spec.get("resources"), path.child("resources")
    if resources is None:
        return
    if get_str(spec, "os", "name") == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    if resources.get("claims"):
        yield forbidden(path.child("claims"), "claims may not be set for Resources at pod-level")
    yield from used_claims(path.child("claims"), get_list(resources, "claims"), claim_names(spec))
    yield from _amounts(path, resources, _shared_name)
    for field in ("requests", "limits"):
        yield from _covered(path, spec, field)
    for position, container in enumerate(get_list(spec, "containers")):
        at = path.child("containers").index(position)
        for name, limit in sorted(get_object(container, "resources", "limits").items()):
            most = get_object(resources, "limits").get(name)
            if most is not None and amount(limit) > amount(most):
                text = f"must be less than or equal to pod limits of {most}"
                yield invalid(at.key(name).child("limits"), str(limit), text)


def _shared_name(path: FieldPath, name: str) -> Iterable[FieldError]:
    """A resource that the containers of a pod share."""
    problems = plain_name_problems(name)
    if problems:
        return [invalid(path, name, problem) for problem in problems]
    known = name in ("cpu", "memory") or name.startswith(_PAGES)
    return [] if known else [not_supported(path, name, ("cpu", _PAGES, "memory"))]


def _covered(path: FieldPath, spec: JsonObject, field: str) -> Iterator[FieldError]:
    """A pod asks for no less than its containers together; of limits that is true of huge pages alone."""
    for name, given in sorted(get_object(spec, "resources", field).items()):
        total = _total(spec, field, name)
        if total > amount(given) and (field == "requests" or name.startswith(_PAGES)):
            text = f"must be greater than or equal to aggregate container {field} of {total}"
            yield invalid(path.child(field).key(name), str(given), text)


def _total(spec: JsonObject, field: str, name: str) -> Quantity:
    """The most that the containers of a pod take at one time: sidecars stay, others of init go first."""
    zero = Quantity.parse("0")

    def wanted(container: JsonObject) -> Quantity:
        return amount(get_object(container, "resources", field).get(name))

    sidecars, first = zero, zero
    for container in get_list(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars + wanted(container)
            first = max(first, sidecars)
        else:
            first = max(first, sidecars + wanted(container))
    total = sidecars
    for container in get_list(spec, "containers"):
        total = total + wanted(container)
    return max(total, first)


def whole(path: FieldPath, name: str, value: Any) -> list[FieldError]:
    """Devices and the like come in whole numbers."""
    if may_overcommit(name) or name.startswith("hugepages-"):
        return []
    return [] if amount(value).milli_value % 1000 == 0 else [invalid(path, str(value), "must be an integer")]


def may_overcommit(name: str) -> bool:
    """Whether containers may be promised more of a resource than there is: not of devices and huge pages."""
    native = "/" not in name or "kubernetes.io/" in name
    return native and not name.startswith("hugepages-")


def _validate_against_limit(name: str, value: Any, limit: Any, path: FieldPath) -> list[FieldError]:
    wanted, most = amount(value), amount(limit)
    if wanted != most and not may_overcommit(name):
        return [invalid(path, str(value), f"must be equal to {name} limit of {limit}")]
    if wanted > most:
        return [invalid(path, str(value), f"must be less than or equal to {name} limit of {limit}")]
    return []
