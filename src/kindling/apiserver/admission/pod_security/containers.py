"""Helpers of the checks: visiting a pod's containers, and naming them in messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kubecore.json import JsonObject, get_list, get_object

T = TypeVar("T", int, str)


def containers(spec: JsonObject) -> Iterator[JsonObject]:
    """Init containers, containers, ephemeral containers: the order in which they are named."""
    for group in ("initContainers", "containers", "ephemeralContainers"):
        yield from get_list(spec, group)


def security(container: JsonObject) -> JsonObject:
    """securityContext of a container or of a pod's spec."""
    return get_object(container, "securityContext")


def names_where(spec: JsonObject, test: Callable[[JsonObject], bool]) -> list[str]:
    """Names of the containers for which `test` holds."""
    return [str(each.get("name")) for each in containers(spec) if test(each)]


def added_capabilities(container: JsonObject) -> set[str]:
    """securityContext.capabilities.add of a container."""
    return {str(each) for each in get_list(security(container), "capabilities", "add")}


def offenders(spec: JsonObject, values_of: Callable[[JsonObject], Iterable[T]]) -> tuple[list[str], list[T]]:
    """Names of the containers of which `values_of` finds something, and all that it finds, sorted."""
    names: list[str] = []
    found: set[T] = set()
    for container in containers(spec):
        values = set(values_of(container))
        if values:
            names.append(str(container.get("name")))
            found |= values
    return names, sorted(found)


def profile_type(holder: JsonObject, field: str) -> str:
    """The type of the seccomp or AppArmor profile that a container or a pod's spec chooses."""
    return str(get_object(security(holder), field).get("type") or "")


def unsafe_profiles(spec: JsonObject, field: str) -> tuple[bool, list[str], list[str]]:
    """Whether the pod, and which containers, choose profiles that are neither the runtime's nor local; their
    types."""

    def unsafe(holder: JsonObject) -> list[str]:
        kind = profile_type(holder, field)
        return [] if kind in ("", "RuntimeDefault", "Localhost") else [kind]

    names, kinds = offenders(spec, unsafe)
    return bool(unsafe(spec)), names, sorted({*unsafe(spec), *kinds})


def quoted(values: Iterable[str]) -> str:
    """``"a", "b"``."""
    return ", ".join(f'"{value}"' for value in values)


def named(names: list[str]) -> str:
    """``container "a"`` or ``containers "a", "b"``."""
    return f"container{'s' if len(names) > 1 else ''} {quoted(names)}"


def setters(pod_sets: bool, names: list[str]) -> str:
    """Who set something: ``pod``, ``container "a"``, or ``pod and container "a"``."""
    return " and ".join((["pod"] if pod_sets else []) + ([named(names)] if names else []))
