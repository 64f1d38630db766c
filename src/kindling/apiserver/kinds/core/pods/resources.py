"""Requests and limits of containers and pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount, messages, quantity
from kubecore.json import JsonObject, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid, required

_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
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


def validate_resources(path: FieldPath, resources: JsonObject) -> Iterator[FieldError]:
    """Requests and limits of a container."""
    for position, claim in enumerate(resources.get("claims") or ()):
        if not claim.get("name"):
            yield required(path.child("claims").index(position))
    limits, requests = get_object(resources, "limits"), get_object(resources, "requests")
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in sorted(amounts.items()):
            at = path.child(field).key(name)
            yield from messages(at, name, resource_name_problems)
            yield from quantity(at, value)
            yield from whole(at, name, value)
            if field == "requests" and name in limits:
                yield from _validate_against_limit(name, value, limits[name], path.child("requests"))
            elif field == "requests" and not _may_overcommit(name):
                yield required(path.child("limits"), "Limit must be set for non overcommitable resources")


def whole(path: FieldPath, name: str, value: Any) -> list[FieldError]:
    """Devices and the like come in whole numbers."""
    if _may_overcommit(name) or name.startswith("hugepages-"):
        return []
    return [] if amount(value).milli_value % 1000 == 0 else [invalid(path, str(value), "must be an integer")]


def _may_overcommit(name: str) -> bool:
    native = "/" not in name or "kubernetes.io/" in name
    return native and not name.startswith("hugepages-")


def _validate_against_limit(name: str, value: Any, limit: Any, path: FieldPath) -> list[FieldError]:
    wanted, most = amount(value), amount(limit)
    if wanted != most and not _may_overcommit(name):
        return [invalid(path, str(value), f"must be equal to {name} limit of {limit}")]
    if wanted > most:
        return [invalid(path, str(value), f"must be less than or equal to {name} limit of {limit}")]
    return []
