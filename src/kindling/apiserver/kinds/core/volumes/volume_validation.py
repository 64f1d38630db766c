"""PersistentVolumes: sources, capacity, placement; what may change."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial
from typing import Any

from kindling.apiserver.kinds.core.pods.placement import NODE_SELECTOR
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import immutable
from kindling.apiserver.kinds.machinery.differences import difference
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    Verbatim,
    forbidden,
    invalid,
    not_supported,
    required,
)

from .claim_validation import CLASS_NAME, VOLUME_MODE, above_zero, access_modes
from .sources import PERSISTENT_SOURCES, iscsi, validate_sources

RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SPEC = FieldPath("spec")


def _capacity(path: FieldPath, capacity: JsonObject) -> Iterator[FieldError]:
    if not capacity:
        yield required(path)
    if set(capacity) != {"storage"}:
        shown: Any = dict(sorted(capacity.items())) if capacity else Verbatim("null")
        yield not_supported(path, shown, ["storage"])
    for name, value in capacity.items():
        yield from above_zero(path.key(name), value)


def _local(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("local") is not None and not get_object(spec, "nodeAffinity").get("required"):
        yield required(path.child("nodeAffinity"), "Local volume requires node affinity")


def _root(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    directory, policy = get_str(spec, "hostPath", "path"), "persistentVolumeReclaimPolicy"
    if directory and posixpath.normpath(directory) == "/" and spec.get(policy) == "Recycle":
        yield forbidden(path.child(policy), "may not be 'recycle' for a hostPath mount of '/'")


_NODES = f.must("required", NODE_SELECTOR, detail="must specify required node constraints", given=True)
_HEAD = f.spec(
    f.must("accessModes", access_modes),
    f.always("capacity", {}, _capacity),
    f.may("persistentVolumeReclaimPolicy", f.choice(*RECLAIM_POLICIES)),
    f.given("nodeAffinity", _NODES),
)
_TAIL = f.spec(
    _root,
    CLASS_NAME,
    VOLUME_MODE,
    f.when(
        lambda spec: spec.get("volumeAttributesClassName") is not None,
        f.must("volumeAttributesClassName", f.SUBDOMAIN, detail="an empty string is disallowed"),
        f.must("csi", detail="has to be specified when using volumeAttributesClassName", given=True),
    ),
)


def validate_volume(volume: JsonObject) -> Iterator[FieldError]:
    """A new volume."""
    yield from _HEAD(volume)
    by_name = {"iscsi": partial(iscsi, volume=get_str(volume, "metadata", "name"))}
    volume_spec = get_object(volume, "spec")
    count, problems = validate_sources(volume_spec, _SPEC, {**PERSISTENT_SOURCES, **by_name})
    yield from problems
    yield from _local(_SPEC, volume_spec)
    if not count:
        yield required(_SPEC, "must specify a volume type")
    yield from _TAIL(volume)


def validate_volume_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """On updates, source, volume mode, and a node affinity once set are immutable."""
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
