"""Slices of device pools: which nodes reach them, and what the devices are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.placement import NODE_SELECTOR
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import immutable
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid, required, too_long, too_many

from . import checks as c

_MAX_DEVICES = 128
_MAX_SPECIAL_DEVICES = 64
"""Devices of a slice in which any has taints, takes from counters or has lists of values."""
_MAX_COUNTER_SETS = 8
_MAX_COUNTERS = 32
_MAX_CONSUMED = 2
_MAX_ATTRIBUTES = 32
_MAX_TAINTS = 16
_MAX_TEXT = 64
_LISTS = ("bools", "ints", "strings", "versions")
_VALUES = ("bool", "int", "string", "version", *_LISTS)
_VERSION = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_PLACES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_PLACES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "
    "when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_ONLY_PER_DEVICE = (
    "`nodeName`, `nodeSelector` and `allNodes` can only be set "
    "if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_SPEC = FieldPath("spec")


def _node_name(detail: str) -> f.Check:
    return lambda path, name: f.SUBDOMAIN(path, name) if name else [invalid(path, name, detail)]


def _true(path: FieldPath, value: bool) -> list[FieldError]:
    return [] if value else [invalid(path, value, "must be either unset or set to true")]


def _one_term(path: FieldPath, selector: JsonObject) -> Iterator[FieldError]:
    terms = get_list(selector, "nodeSelectorTerms")
    if len(terms) != 1:
        yield invalid(path.child("nodeSelectorTerms"), terms, "must have exactly one node selector term")


def _one_place(
    path: FieldPath, obj: JsonObject, places: tuple[str, ...], lack: str, many: str
) -> list[FieldError]:
    chosen = [f"`{name}`" for name in places if obj.get(name) or (name == "nodeSelector" and name in obj)]
    if not chosen:
        return [required(path, lack)]
    return [] if len(chosen) == 1 else [invalid(path, f"{{{', '.join(chosen)}}}", many)]


def _pool(path: FieldPath, pool: JsonObject) -> Iterable[FieldError]:
    return f.check_fields(
        pool,
        path,
        f.always("name", "", c.pool_name),
        f.always("resourceSliceCount", 0, f.at_least(1, "must be greater than zero")),
        f.always("generation", 0, f.at_least(0, "must be greater than or equal to zero")),
    )


def _text(path: FieldPath, value: str) -> list[FieldError]:
    return [too_long(path, _MAX_TEXT)] if len(value.encode()) > _MAX_TEXT else []


def _version(path: FieldPath, value: str) -> Iterator[FieldError]:
    if not _VERSION.fullmatch(value):
        yield invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    yield from _text(path, value)


def _not_empty(path: FieldPath, value: list[Any]) -> list[FieldError]:
    return [] if value else [invalid(path, value, "must not be empty if specified")]


def _attribute(path: FieldPath, attribute: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(
        attribute,
        path,
        f.given("string", _text),
        f.given("version", _version),
        f.given("bools", _not_empty),
        f.given("ints", _not_empty),
        f.given("strings", _not_empty, f.items(_text)),
        f.given("versions", _not_empty, f.items(_version)),
    )
    given = [name for name in _VALUES if attribute.get(name) is not None]
    if len(given) != 1:
        yield invalid(path, attribute if given else "", "exactly one value must be specified")


def _entries(check_key: f.Check, check: f.Check | None = None, limit: int | None = None) -> f.Check:
    def judge(path: FieldPath, value: JsonObject) -> Iterator[FieldError]:
        if limit is not None and len(value) > limit:
            yield too_many(path, len(value), limit)
            return
        for key, item in sorted(value.items()):
            yield from check_key(path, key)
            if check is not None:
                yield from check(path.key(key), item)

    return judge


_COUNTERS = f.must("counters", _entries(f.LABEL, limit=_MAX_COUNTERS))
_COUNTER_SETS = c.unique(_MAX_COUNTER_SETS, c.by("name"), f.must("name", f.LABEL), _COUNTERS)
_CONSUMED = c.unique(_MAX_CONSUMED, c.by("counterSet"), f.must("counterSet", f.LABEL), _COUNTERS)
_TAINT: tuple[f.Row, ...] = (
    f.always("key", "", f.QUALIFIED),
    f.may("value", f.LABEL_VALUE),
    f.must("effect", f.choice(*c.EFFECTS)),
)
_ONCE_ALLOCATED = _entries(
    c.qualified_name, f.within(f.absent("allowMultipleAllocations must be true", "requestPolicy"))
)
_SHARED = _entries(c.qualified_name)


def _amounts(path: FieldPath, device: JsonObject) -> Iterator[FieldError]:
    count = len(get_object(device, "attributes")) + len(get_object(device, "capacity"))
    if count > _MAX_ATTRIBUTES:
        text = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        yield invalid(path, count, text)


def _device(*, places_itself: bool) -> f.Check:
    def placed(path: FieldPath, device: JsonObject) -> Iterator[FieldError]:
        places = ("nodeName", "nodeSelector", "allNodes")
        if places_itself:
            yield from f.check_fields(
                device,
                path,
                f.given("nodeName", _node_name("must not be empty")),
                f.given("nodeSelector", NODE_SELECTOR),
                f.given("allNodes", _true),
            )
            yield from _one_place(path, device, places, _DEVICE_PLACES, _DEVICE_PLACES)
        elif any(device.get(name) is not None for name in places):
            yield invalid(path, None, _ONLY_PER_DEVICE)

    return f.within(
        c.label("name"),
        _amounts,
        f.may("attributes", _entries(c.qualified_name, _attribute)),
        f.when(f.equals("allowMultipleAllocations", True), f.may("capacity", _SHARED)),
        f.unless(f.equals("allowMultipleAllocations", True), f.may("capacity", _ONCE_ALLOCATED)),
        f.may("taints", c.at_most(_MAX_TAINTS, *_TAINT)),
        f.may("consumesCounters", _CONSUMED),
        placed,
        c.binding_conditions,
    )


def _is_special(device: JsonObject) -> bool:
    lists = any(name in item for item in get_object(device, "attributes").values() for name in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters") or lists)


def validate_slice(obj: JsonObject) -> Iterator[FieldError]:
    """One way to reach the nodes, and devices or counters that belong together."""
    yield from _judged(obj, None)


def validate_slice_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The driver, pool and node stay."""
    yield from _judged(new, get_object(old, "spec"))


def _judged(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    spec = get_object(obj, "spec")
    yield from f.check_fields(spec, _SPEC, c.driver(), f.part("pool", _pool))
    if old is not None:
        pools = [get_object(each, "pool").get("name") for each in (spec, old)]
        yield from immutable(_SPEC.child("pool", "name"), *pools)
        for name in ("driver", "nodeName"):
            yield from immutable(_SPEC.child(name), spec.get(name), old.get(name))
    yield from f.check_fields(
        spec,
        _SPEC,
        f.given("nodeName", _node_name("must be either unset or set to a non-empty string")),
        f.given("nodeSelector", NODE_SELECTOR, _one_term),
        f.given("allNodes", _true),
        f.given("perDeviceNodeSelection", _true),
    )
    places = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
    yield from _one_place(_SPEC, spec, places, _PLACES, f"{_PLACES}, but multiple fields are set")
    devices = get_list(spec, "devices")
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid(_SPEC, "", "only one of `sharedCounters` or `devices` is allowed")
    most = _MAX_SPECIAL_DEVICES if any(map(_is_special, devices)) else _MAX_DEVICES
    device = _device(places_itself=bool(spec.get("perDeviceNodeSelection")))
    yield from f.check_fields(
        spec,
        _SPEC,
        f.may("devices", c.unique(most, c.by("name"), device)),
        f.may("sharedCounters", _COUNTER_SETS),
    )
