"""Patches of lists as long as a request: they take the time that their length takes."""

from __future__ import annotations

import time

import pytest

from kubecore.json import JsonObject
from kubecore.patch.strategic import strategic_merge
from kubecore.schema.model import Schema

_MANY = 40_000
_SECONDS = 10.0
"""Of a busy machine's processor. Comparing each with each would take minutes."""
_NAMES = [f"n{number}" for number in range(_MANY)]
_MERGED: JsonObject = {"type": "array", "x-kubernetes-patch-strategy": "merge"}
_OBJECT: JsonObject = {"type": "object", "properties": {"name": {"type": "string"}}}
_SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "env": {**_MERGED, "x-kubernetes-patch-merge-key": "name", "items": _OBJECT},
            "finalizers": {**_MERGED, "items": {"type": "string"}},
            "data": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
)
_STORED: JsonObject = {
    "env": [{"name": name} for name in _NAMES],
    "finalizers": _NAMES,
    "data": dict.fromkeys(_NAMES, "old") | {"other": "old"},
}


def _merged(patch: JsonObject) -> JsonObject:
    begun = time.thread_time()
    merged = strategic_merge(_STORED, patch, _SCHEMA)
    assert time.thread_time() - begun < _SECONDS
    return merged


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ({"env": [{"name": name, "$patch": "delete"} for name in _NAMES]}, 0),
        ({"$setElementOrder/env": [{"name": name} for name in _NAMES[::-2]]}, _MANY),
        ({"env": [{"name": name, "value": "v"} for name in reversed(_NAMES[_MANY // 2 :])]}, _MANY),
    ],
    ids=["deleted", "ordered", "changed"],
)
def test_a_long_list_of_objects_is_merged_in_linear_time(patch: JsonObject, left: int) -> None:
    assert len(_merged(patch)["env"]) == left


@pytest.mark.timeout(60)
def test_many_values_are_taken_from_a_list_in_linear_time() -> None:
    assert _merged({"$deleteFromPrimitiveList/finalizers": _NAMES[::-1]})["finalizers"] == []


@pytest.mark.timeout(60)
def test_many_keys_are_kept_in_linear_time() -> None:
    kept = dict.fromkeys(_NAMES, "new")
    assert _merged({"data": {"$retainKeys": _NAMES, **kept}})["data"] == kept
