"""PersistentVolumes: sources, capacity, placement; what may change."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial
from typing import Any

from kindling.apiserver.kinds.core.pods.placement import validate_node_selector
from kindling.apiserver.kinds.machinery.checks import amount, immutable
from kindling.apiserver.kinds.machinery.differences import difference
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, must, named, within
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    Verbatim,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.quantity import Quantity

from .claim_validation import CLASS_NAME, VOLUME_MODE, validate_access_modes
from .sources import PERSISTENT_SOURCES, iscsi, validate_sources

RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SPEC = FieldPath("spec")


def _node_selector(path: FieldPath, selector: JsonObject) -> list[FieldError]:
    return validate_node_selector(selector, path)


_AFFINITY = within(
    must("required", _node_selector, detail="must specify required node constraints", given=True)
)


def validate_volume(volume: JsonObject) -> Iterator[FieldError]:
    """A new volume."""
    spec = get_object(volume, "spec")
    yield from check_fields(spec, _SPEC, must("accessModes"))
    yield from validate_access_modes(get_list(spec, "accessModes"), _SPEC.child("accessModes"))
    yield from _validate_capacity(spec.get("capacity") or {})
    yield from check_fields(
        spec,
        _SPEC,
        may("persistentVolumeReclaimPolicy", choice(*RECLAIM_POLICIES)),
        given("nodeAffinity", _AFFINITY),
    )
    by_name = {"iscsi": partial(iscsi, volume=get_str(volume, "metadata", "name"))}
    count, problems = validate_sources(spec, _SPEC, {**PERSISTENT_SOURCES, **by_name})
    yield from problems
    if isinstance(spec.get("local"), dict) and not get_object(spec, "nodeAffinity").get("required"):
        yield required(_SPEC.child("nodeAffinity"), "Local volume requires node affinity")
    if not count:
        yield required(_SPEC, "must specify a volume type")
    path = get_str(spec, "hostPath", "path")
    if path and posixpath.normpath(path) == "/" and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        text = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden(_SPEC.child("persistentVolumeReclaimPolicy"), text)
    yield from check_fields(spec, _SPEC, CLASS_NAME, VOLUME_MODE)
    if spec.get("volumeAttributesClassName") is not None:
        rule = must(
            "volumeAttributesClassName",
            named(names.is_dns1123_subdomain),
            detail="an empty string is disallowed",
        )
        yield from check_fields(spec, _SPEC, rule)
        yield from check_fields(
            spec,
            _SPEC,
            must("csi", detail="has to be specified when using volumeAttributesClassName", given=True),
        )


def _validate_capacity(capacity: JsonObject) -> Iterator[FieldError]:
    at = _SPEC.child("capacity")
    if not capacity:
        yield required(at)
    if set(capacity) != {"storage"}:
        shown: Any = dict(sorted(capacity.items())) if capacity else Verbatim("null")
        yield not_supported(at, shown, ["storage"])
    for name, value in capacity.items():
        if amount(value) <= Quantity.parse("0"):
            yield invalid(at.key(name), str(value), "must be greater than zero")


def validate_volume_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change: the source and the mode stay, and so does the node affinity once there is one."""
    for _ in range(2):  # judged as a new volume and again as a change
        yield from validate_volume(new)
    spec, before = deep_copy(get_object(new, "spec")), get_object(old, "spec")
    known = before.get("csi")
    if (
        isinstance(known, dict)
        and "controllerExpandSecretRef" not in known
        and isinstance(spec.get("csi"), dict)
    ):
        # The secret for growing a volume may be added later.
        spec["csi"].pop("controllerExpandSecretRef", None)
    after, sources = ({name: part.get(name) for name in PERSISTENT_SOURCES} for part in (spec, before))
    if after != sources:
        text = "spec.persistentvolumesource is immutable after creation"
        changed = {name for name in sources if sources[name] != after[name]}
        detail = difference(*({name: part[name] for name in changed} for part in (after, sources)))
        yield forbidden(_SPEC.child("persistentvolumesource"), f"{text}\n{detail}")
    yield from immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    if before.get("nodeAffinity") is not None and spec.get("nodeAffinity") != before["nodeAffinity"]:
        text = "field is immutable, except for updating from beta label to GA"
        yield invalid("nodeAffinity", internal_form(spec.get("nodeAffinity"), _INTERNAL_AFFINITY), text)
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        text = "update from non-nil value to nil is forbidden"
        yield forbidden(_SPEC.child("volumeAttributesClassName"), text)


_EXPRESSIONS = [{"Key": "", "Operator": "", "Values": None}]
_INTERNAL_AFFINITY = {
    "Required": {"NodeSelectorTerms": [{"MatchExpressions": _EXPRESSIONS, "MatchFields": _EXPRESSIONS}]}
}
