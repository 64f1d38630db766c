"""Patches that guard themselves: whoever wrote meanwhile makes them fail."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject, deep_copy
from kubecore.patch.guarded import guarded_patch, same_version
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch


def thing(**parts: Any) -> JsonObject:
    metadata = {"name": "t", "uid": "u1", "resourceVersion": "7", **parts.pop("metadata", {})}
    return {"metadata": metadata, **parts}


def changed(old: JsonObject, **metadata: Any) -> JsonObject:
    new = deep_copy(old)
    new["metadata"].update(metadata)
    return new


def test_a_patch_makes_the_new_state_of_the_old() -> None:
    old = thing(metadata={"finalizers": ["a"], "labels": {"x/y": "1", "gone": "1"}}, status={"phase": "A"})
    new = changed(old, finalizers=["a", "b"], labels={"x/y": "2", "fresh": "1"})
    new["status"] = {"phase": "B", "conditions": []}
    patch = guarded_patch(old, new, ("metadata",), ("status",))
    assert apply_json_patch(old, patch) == new


def test_equal_states_need_no_patch() -> None:
    assert guarded_patch(thing(), thing(), ("metadata",), ("status",)) == []


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param({"finalizers": ["a", "other"]}, id="a list that grew"),
        pytest.param({"finalizers": None}, id="a list that went"),
        pytest.param({"uid": "u2"}, id="another object of that name"),
    ],
)
def test_a_patch_fails_where_somebody_else_wrote(meanwhile: JsonObject) -> None:
    old = thing(metadata={"finalizers": ["a"]})
    patch = guarded_patch(old, changed(old, finalizers=["a", "b"]), ("metadata",))
    current = changed(old, **meanwhile)
    if current["metadata"]["finalizers"] is None:
        del current["metadata"]["finalizers"]
    with pytest.raises(JsonPatchError):
        apply_json_patch(current, patch)


def test_a_field_that_was_absent_is_not_overwritten_once_it_is_there() -> None:
    old = thing()
    patch = guarded_patch(old, changed(old, finalizers=["mine"]), ("metadata",))
    assert apply_json_patch(old, patch)["metadata"]["finalizers"] == ["mine"]
    with pytest.raises(JsonPatchError):
        apply_json_patch(changed(old, finalizers=["other"]), patch)


def test_a_parent_that_was_absent_is_not_overwritten_once_it_is_there() -> None:
    old = thing()
    new = {**old, "status": {"phase": "A"}}
    patch = guarded_patch(old, new, ("status",))
    assert apply_json_patch(old, patch) == new
    with pytest.raises(JsonPatchError):
        apply_json_patch({**old, "status": {"conditions": [1]}}, patch)


def test_a_patch_can_be_bound_to_the_version_that_was_read() -> None:
    old = thing()
    assert apply_json_patch(old, same_version(old)) == old
    with pytest.raises(JsonPatchError):
        apply_json_patch(changed(old, resourceVersion="8"), same_version(old))
