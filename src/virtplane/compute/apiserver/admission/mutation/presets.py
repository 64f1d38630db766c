"""Presets: settings given to instances whose labels a selector matches. Deprecated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.structs import decode, encode
from virtplane.api import labels
from virtplane.api.meta_v1 import LabelSelector

DEPRECATION = "kubevirt.io/v1 VirtualMachineInstancePresets is now deprecated and will be removed in v2."
_API_VERSION = "kubevirt.io/v1"
_PARTS: tuple[tuple[str, ...], ...] = (
    ("cpu",),
    ("firmware",),
    ("clock", "utc"),
    ("clock", "timezone"),
    ("clock", "timer"),
    ("features",),
    ("devices", "watchdog"),
    ("ioThreadsPolicy",),
)
"""Parts of a domain that a preset may give, beside resource requests."""


class PresetConflict(Exception):
    """Two presets give different values for one thing."""


def apply_presets(instance: JsonObject, presets: Sequence[JsonObject]) -> None:
    """Fill in what matching presets give and the instance leaves open; remember which presets did.

    Raises PresetConflict.
    """
    own = get_object(instance, "metadata")
    if get_str(own, "annotations", labels.PRESET_EXCLUDE) == "true":
        return
    matching = [
        preset
        for preset in presets
        if from_label_selector_object(_selector(preset)).matches(get_object(own, "labels"))
    ]
    _check_conflicts(matching)
    domain = instance["spec"].setdefault("domain", {})
    for preset in matching:
        if _apply(domain, get_object(preset, "spec", "domain")):
            key = labels.PRESET_PREFIX + get_str(preset, "metadata", "name")
            metadata = instance.setdefault("metadata", {})
            metadata.setdefault("annotations", {})[key] = _API_VERSION


def _selector(preset: JsonObject) -> JsonObject:
    return encode(decode(LabelSelector, get_object(preset, "spec", "selector")))


def _apply(domain: JsonObject, given: JsonObject) -> bool:
    applied = False
    requests = get_object(given, "resources", "requests")
    own_requests = get_object(domain, "resources", "requests")
    for name, amount in requests.items():
        if name not in own_requests:
            domain.setdefault("resources", {}).setdefault("requests", {})[name] = amount
            applied = True
    for path in _PARTS:
        value = _at(given, path)
        if value is None or _at(domain, path) is not None:
            applied = applied or (value is not None and _at(domain, path) == value)
            continue
        target = domain
        for key in path[:-1]:
            target = target.setdefault(key, {})
        target[path[-1]] = deep_copy({"value": value})["value"]
        applied = True
    return applied


def _check_conflicts(presets: Sequence[JsonObject]) -> None:
    """Compare what each preset gives with what was given first: a namespace may have thousands of presets."""
    known: dict[tuple[str, ...], tuple[int, Any]] = {}
    for index, preset in enumerate(presets):
        domain = get_object(preset, "spec", "domain")
        conflicting = []
        for thing, value in _given(domain):
            giver, first = known.setdefault(thing, (index, value))
            if first != value:
                conflicting.append(giver)
        if conflicting:
            other = presets[min(conflicting)]
            names = [get_str(each, "metadata", "name") for each in (other, preset)]
            differing = _differences(get_object(other, "spec", "domain"), domain)
            raise PresetConflict(
                "VirtualMachinePresets cannot be applied due to conflicts:"
                f" presets '{names[0]}' and '{names[1]}' conflict: {', '.join(differing)}"
            )


def _given(domain: JsonObject) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What a preset's domain gives, with the values."""
    for name, amount in get_object(domain, "resources", "requests").items():
        yield ("resources", "requests", name), amount
    for path in _PARTS:
        value = _at(domain, path)
        if value is not None:
            yield path, value


def _differences(one: JsonObject, other: JsonObject) -> list[str]:
    found = []
    mine, theirs = get_object(one, "resources", "requests"), get_object(other, "resources", "requests")
    for name in mine:
        if name in theirs and mine[name] != theirs[name]:
            found.append(f"spec.resources.requests[{name}]: {mine[name]} != {theirs[name]}")
    for path in _PARTS:
        first, second = _at(one, path), _at(other, path)
        if first is not None and second is not None and first != second:
            found.append(f"spec.{'.'.join(path)}: {first} != {second}")
    return found


def _at(document: JsonObject, path: Sequence[str]) -> Any:
    return get_object(document, *path[:-1]).get(path[-1])
