"""The laws of strategic merge patches: what a client computes as the difference leads to what it wanted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubecore.json import JsonObject, deep_copy
from kubecore.patch.strategic import strategic_merge
from kubecore.schema.model import Schema

_TEXT: JsonObject = {"type": "string"}
_ENVIRONMENT: JsonObject = {
    "type": "array",
    "x-kubernetes-patch-strategy": "merge",
    "x-kubernetes-patch-merge-key": "name",
    "items": {"type": "object", "properties": {"name": _TEXT, "value": _TEXT}},
}
_SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "containers": {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
                "items": {
                    "type": "object",
                    "properties": {"name": _TEXT, "image": _TEXT, "env": _ENVIRONMENT},
                },
            },
            "finalizers": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": _TEXT},
            "command": {"type": "array", "items": _TEXT},
            "labels": {"type": "object", "additionalProperties": _TEXT},
            "strategy": {
                "type": "object",
                "x-kubernetes-patch-strategy": "retainKeys",
                "properties": {"type": _TEXT, "rolling": {"type": "object"}},
            },
        },
    }
)


def _named(**fields: Any) -> Any:
    element = st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional=fields)
    return st.lists(element, unique_by=lambda item: item["name"], min_size=1, max_size=4)


_OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "containers": _named(
            image=st.sampled_from("xy"), env=_named(value=st.sampled_from("12")), command=st.just(["run"])
        ),
        "finalizers": st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=4),
        "command": st.lists(st.sampled_from("ab"), min_size=1, max_size=3),
        "labels": st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), min_size=1),
        "strategy": st.fixed_dictionaries(
            {"type": st.sampled_from(["Recreate", "Rolling"])}, optional={"rolling": st.just({"surge": 1})}
        ),
        "count": st.integers(0, 2),
    },
)


def _is_keyed(key: str) -> bool:
    return key in ("containers", "env")


def _difference(old: JsonObject, new: JsonObject, *, deletes: bool = True, sets: bool = True) -> JsonObject:
    """The patch from one to the other as kubectl computes it; without deletions, or nothing but those."""
    patch: JsonObject = {key: None for key in old if key not in new} if deletes else {}
    for key, value in new.items():
        if key not in old:
            patch |= {key: value} if sets else {}
        elif old[key] != value:
            patch |= _changed(key, old[key], value, deletes=deletes, sets=sets)
    return patch


def _changed(key: str, old: Any, new: Any, *, deletes: bool, sets: bool) -> JsonObject:
    if isinstance(new, dict):
        inner = _difference(old, new, deletes=deletes, sets=sets)
        if key == "strategy" and sets:
            inner = {"$retainKeys": sorted(new), **inner}
        return {key: inner} if inner else {}
    if _is_keyed(key):
        return _changed_elements(key, old, new, deletes=deletes, sets=sets)
    if key == "finalizers":
        gone = [item for item in old if item not in new]
        added = [item for item in new if item not in old]
        patch: JsonObject = {f"$deleteFromPrimitiveList/{key}": gone} if gone and deletes else {}
        return {**patch, key: added, f"$setElementOrder/{key}": new} if sets else patch
    return {key: new} if sets else {}


def _changed_elements(key: str, old: Any, new: Any, *, deletes: bool, sets: bool) -> JsonObject:
    before, after = ({item["name"]: item for item in items} for items in (old, new))
    elements = []
    for name, item in after.items():
        if name not in before:
            elements += [item] if sets else []
            continue
        inner = _difference(before[name], item, deletes=deletes, sets=sets)
        elements += [{"name": name, **inner}] if inner else []
    if deletes:
        elements += [{"$patch": "delete", "name": name} for name in before if name not in after]
    order: JsonObject = {f"$setElementOrder/{key}": [{"name": name} for name in after]} if sets else {}
    return {key: elements, **order} if elements or order else {}


def _applied(original: JsonObject, modified: JsonObject, current: JsonObject) -> JsonObject:
    """What ``kubectl apply`` does: deletions since its last configuration, all that the new one sets."""
    after = strategic_merge(current, _difference(original, modified, sets=False), _SCHEMA)
    return strategic_merge(after, _difference(after, modified, deletes=False), _SCHEMA)


@given(_OBJECTS, _OBJECTS)
def test_the_difference_leads_to_the_new_object(old: JsonObject, new: JsonObject) -> None:
    before = deep_copy(old)
    assert strategic_merge(old, _difference(old, new), _SCHEMA) == new
    assert old == before


@given(_OBJECTS, _OBJECTS)
def test_the_difference_applied_again_changes_nothing(old: JsonObject, new: JsonObject) -> None:
    patch = _difference(old, new)
    once = strategic_merge(old, patch, _SCHEMA)
    assert strategic_merge(once, patch, _SCHEMA) == once


@given(_OBJECTS)
def test_an_empty_patch_changes_nothing(document: JsonObject) -> None:
    assert strategic_merge(document, {}, _SCHEMA) == document


def _holds(wanted: Any, found: Any, key: str = "") -> bool:
    """Whether all that is wanted is there, among other things."""
    if isinstance(wanted, dict):
        return all(name in found and _holds(value, found[name], name) for name, value in wanted.items())
    if _is_keyed(key):
        by_name = {item["name"]: item for item in found}
        return all(item["name"] in by_name and _holds(item, by_name[item["name"]]) for item in wanted)
    return set(wanted) <= set(found) if key == "finalizers" else bool(wanted == found)


@given(_OBJECTS, _OBJECTS, _OBJECTS)
def test_a_three_way_apply_sets_all_that_is_configured(
    original: JsonObject, modified: JsonObject, current: JsonObject
) -> None:
    result = _applied(original, modified, current)
    assert _holds(modified, result)
    assert _holds(modified, _applied(modified, modified, result))


@given(_OBJECTS, _OBJECTS)
def test_a_three_way_apply_to_what_was_applied_gives_the_new_configuration(
    original: JsonObject, modified: JsonObject
) -> None:
    assert _applied(original, modified, original) == modified


@given(_OBJECTS, _OBJECTS, _OBJECTS)
def test_a_three_way_apply_keeps_what_others_added(
    original: JsonObject, modified: JsonObject, theirs: JsonObject
) -> None:
    current = strategic_merge(original, theirs, _SCHEMA)
    result = _applied(original, modified, current)
    for key, value in current.get("labels", {}).items():
        if key not in original.get("labels", {}) and key not in modified.get("labels", {}):
            # Unless the configuration drops the map as a whole, which it had.
            if "labels" in original and "labels" not in modified:
                continue
            assert result["labels"][key] == value
    ours = {item["name"] for parts in (original, modified) for item in parts.get("containers", [])}
    names = {item["name"] for item in result.get("containers", [])}
    if "containers" in modified or "containers" not in original:
        assert names >= {item["name"] for item in current.get("containers", [])} - ours
