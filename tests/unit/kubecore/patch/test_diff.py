"""Patches made from two documents lead from one to the other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubecore.json import JsonObject, deep_copy
from kubecore.patch import diff
from kubecore.patch.jsonpatch import apply_json_patch, is_equal
from kubecore.patch.mergepatch import apply_merge_patch

_KEYS = st.sampled_from(["a", "b", "~/"])


def _documents(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(_KEYS, values, max_size=3)


_ANY = _documents(st.none() | st.booleans() | st.integers(0, 2))
_WITHOUT_NULL = _documents(st.booleans() | st.integers(0, 2))


@given(_ANY, _ANY)
def test_a_json_patch_leads_to_the_new_document(old: JsonObject, new: JsonObject) -> None:
    before = deep_copy(old)
    operations = diff.create_json_patch(old, new)
    assert is_equal(apply_json_patch(old, operations), new)
    assert old == before
    assert bool(operations) != is_equal(old, new)


@given(_WITHOUT_NULL, _WITHOUT_NULL)
def test_a_merge_patch_leads_to_the_new_document(old: JsonObject, new: JsonObject) -> None:
    patch = diff.create_merge_patch(old, new)
    assert is_equal(apply_merge_patch(old, patch), new)
    assert bool(patch) != is_equal(old, new)


def test_a_patch_says_no_more_than_it_must() -> None:
    old: JsonObject = {"metadata": {"labels": {"a/b": "1"}}, "list": [1, 2, 3]}
    new: JsonObject = {"metadata": {"labels": {"a/b": "2"}}, "list": [1, 3], "x": {}}
    assert diff.create_json_patch(old, new) == [
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
        {"op": "remove", "path": "/list/1"},
        {"op": "add", "path": "/x", "value": {}},
    ]
    assert diff.create_merge_patch(old, new) == {
        "metadata": {"labels": {"a/b": "2"}},
        "list": [1, 3],
        "x": {},
    }
    assert diff.create_merge_patch(new, old)["x"] is None


def test_values_can_be_tested_first() -> None:
    path = diff.pointer("metadata", "labels", "a/b~c", 0)
    assert path == "/metadata/labels/a~1b~0c/0"
    assert diff.expecting(path, "x") == {"op": "test", "path": path, "value": "x"}
