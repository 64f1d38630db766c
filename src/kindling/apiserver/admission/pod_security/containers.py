"""Looking at pods for the checks, and naming what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kubecore.json import JsonObject, get_list, get_object


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


def quoted(values: Iterable[str]) -> str:
    """``"a", "b"``."""
    return ", ".join(f'"{value}"' for value in values)


def named(names: list[str]) -> str:
    """``container "a"`` or ``containers "a", "b"``."""
    return f"container{'s' if len(names) > 1 else ''} {quoted(names)}"


def setters(pod_sets: bool, names: list[str]) -> str:
    """Who set something: ``pod``, ``container "a"``, or ``pod and container "a"``."""
    return " and ".join((["pod"] if pod_sets else []) + ([named(names)] if names else []))
