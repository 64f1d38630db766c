"""Requests and limits of containers and pods."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.checks import amount, quantity
from kubecore.json import JsonObject, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid, required

_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def resource_name_problems(name: str) -> list[str]:
    """What is wrong with the name of a container's resource."""
    problems = names.is_qualified_name(name)
    if problems:
        return problems
    if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        return ["must be a standard resource for containers"]
    return []


def validate_resources(resources: JsonObject, path: FieldPath) -> list[FieldError]:
    """Requests and limits of a container."""
    found: list[FieldError] = []
    limits, requests = get_object(resources, "limits"), get_object(resources, "requests")
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in sorted(amounts.items()):
            at = path.child(field).key(name)
            found += _validate_resource_name(name, path.child(field))
            found += quantity(at, value)
            found += _validate_extended(name, value, at)
            if field == "requests" and name in limits:
                found += _validate_against_limit(name, value, limits[name], path.child("requests"))
            elif field == "requests" and not _may_overcommit(name):
                found.append(
                    required(path.child("limits"), "Limit must be set for non overcommitable resources")
                )
    return found


def _validate_resource_name(name: str, path: FieldPath) -> list[FieldError]:
    return [invalid(path, name, problem) for problem in resource_name_problems(name)]


def _validate_extended(name: str, value: Any, path: FieldPath) -> list[FieldError]:
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
