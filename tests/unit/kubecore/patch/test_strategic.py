"""Strategic merge patch: lists merge by key, directives refine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.patch.strategic import decode_strategic_patch, invalid_patch, strategic_merge
from kubecore.schema.model import Schema

_TEXT = {"type": "string"}


def _keyed(key: str, **properties: Any) -> JsonObject:
    return {
        "type": "array",
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": key,
        "items": {"type": "object", "properties": {key: _TEXT, **properties}},
    }


_SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "containers": _keyed(
                "name", image=_TEXT, env=_keyed("name", value=_TEXT), command={"type": "array"}
            ),
            "finalizers": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": _TEXT},
            "tolerations": {"type": "array", "items": {"type": "object"}},
            "strategy": {
                "type": "object",
                "x-kubernetes-patch-strategy": "retainKeys",
                "properties": {"type": _TEXT, "rollingUpdate": {"type": "object"}},
            },
            "whole": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
            "labels": {"type": "object", "additionalProperties": _TEXT},
            "keyless": {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge",
                "items": {"type": "object"},
            },
        },
    }
)
_POD: JsonObject = {
    "containers": [
        {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"name": "two", "image": "j"},
    ],
    "finalizers": ["x", "y"],
    "tolerations": [{"key": "t"}],
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
    "labels": {"a": "1"},
}


def _merged(patch: JsonObject, document: JsonObject = _POD) -> JsonObject:
    before, patch_before = deep_copy(document), deep_copy(patch)
    result = strategic_merge(document, patch, _SCHEMA)
    assert (document, patch) == (before, patch_before), "the arguments must not change"
    return result


def _names(document: JsonObject) -> list[str]:
    return [container["name"] for container in document["containers"]]


def test_elements_merge_by_key_and_new_ones_come_first() -> None:
    result = _merged({"containers": [{"name": "three"}, {"name": "two", "image": "k"}]})
    assert _names(result) == ["three", "one", "two"]
    assert result["containers"][2] == {"name": "two", "image": "k"}
    assert _names(_merged({"containers": [{"name": "three"}]})) == ["three", "one", "two"]


def test_lists_inside_elements_merge_too() -> None:
    result = _merged({"containers": [{"name": "one", "env": [{"name": "B", "value": "x"}, {"name": "C"}]}]})
    assert result["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "x"},
        {"name": "C"},
    ]


def test_lists_without_a_strategy_are_replaced() -> None:
    assert _merged({"tolerations": [{"key": "u"}]})["tolerations"] == [{"key": "u"}]
    assert _merged({"whole": {"b": 1}}, {"whole": {"a": 1}})["whole"] == {"b": 1}


def test_null_removes() -> None:
    result = _merged({"labels": None, "containers": [{"name": "one", "image": None}], "absent": None})
    assert "labels" not in result and "absent" not in result
    assert "image" not in result["containers"][0]


def test_nulls_inside_new_values_vanish() -> None:
    assert _merged({"whole": {"a": None, "b": {"c": None}}})["whole"] == {"b": {}}


def test_lists_of_scalars_merge_as_sets() -> None:
    assert _merged({"finalizers": ["z", "x"]})["finalizers"] == ["z", "x", "y"]


def test_elements_are_deleted_and_lists_replaced_by_directives() -> None:
    assert _names(_merged({"containers": [{"name": "two", "$patch": "delete"}]})) == ["one"]
    replaced = _merged({"containers": [{"name": "new"}, {"$patch": "replace"}]})
    assert replaced["containers"] == [{"name": "new"}]
    assert _merged({"$patch": "replace", "labels": {"z": "1"}}) == {"labels": {"z": "1"}}
    assert _merged({"labels": {"$patch": "delete"}})["labels"] == {}
    assert _merged({"new": {"$patch": "delete", "a": 1}, "other": [{"$patch": "delete"}]}) == {
        **_POD,
        "other": [],
    }


def test_scalars_are_deleted_from_lists_by_directive() -> None:
    assert _merged({"$deleteFromPrimitiveList/finalizers": ["x"]})["finalizers"] == ["y"]
    assert "none" not in _merged({"$deleteFromPrimitiveList/none": ["x"]})


def test_the_order_of_elements_follows_the_directive() -> None:
    patch = {"$setElementOrder/containers": [{"name": "two"}, {"name": "one"}]}
    assert _names(_merged(patch)) == ["two", "one"]
    patch = {
        "$setElementOrder/containers": [{"name": "three"}, {"name": "one"}],
        "containers": [{"name": "three"}],
    }
    assert _names(_merged(patch)) == ["three", "one", "two"]
    assert _merged({"$setElementOrder/finalizers": ["y", "x"]})["finalizers"] == ["y", "x"]


def test_only_retained_keys_survive() -> None:
    assert _merged({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}})["strategy"] == {
        "type": "Recreate"
    }
    assert _merged({"strategy": {"$retainKeys": ["type"], "type": "X"}}, {})["strategy"] == {"type": "X"}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"containers": [{"name": "one", "$patch": "odd"}]},
            500,
            "unknown patch type: odd in map: map[$patch:odd name:one]",
        ),
        ({"$patch": "odd"}, 500, "unknown patch type: odd in map: map[$patch:odd]"),
        (
            {"containers": [{"$patch": "delete"}]},
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            {"containers": [{"image": "nameless"}]},
            500,
            "map: map[image:nameless] does not contain declared merge key: name",
        ),
        ({"strategy": {"$retainKeys": "type"}}, 400, "invalid patch format of retainKeys"),
        (
            {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}},
            400,
            "invalid patch format of retainKeys",
        ),
        ({"$setElementOrder": []}, 400, "invalid patch format of setElementOrder list"),
        ({"$deleteFromPrimitiveList": []}, 400, "invalid patch format of primitive list"),
        (
            {"containers": [{"name": "one", "$patch": "merge"}]},
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        ({"finalizers": [["x"]]}, 500, "list element types are not identical: [[x y] [[x]]]"),
        (
            {"containers": [{"name": "two", "env": [{"name": "C"}, None]}, {"name": "one", "env": [5]}]},
            500,
            "list element types are not identical: [[map[name:A value:1] map[name:B value:2]] [5]]",
        ),
    ],
)
def test_contradictory_patches_are_refused(patch: JsonObject, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        _merged(patch)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_the_directive_s_order_must_agree_with_the_patch() -> None:
    with pytest.raises(StatusError, match="The order in patch list"):
        _merged({"$setElementOrder/finalizers": ["y"], "finalizers": ["x"]})


def test_a_list_of_objects_without_a_key_cannot_merge() -> None:
    with pytest.raises(StatusError, match="cannot merge lists without merge key"):
        _merged({"keyless": [{"b": 1}]}, {"keyless": [{"a": 1}]})


@pytest.mark.parametrize("name", [{"a": "b"}, ["a"], [{"a": []}]])
def test_keys_of_the_wrong_type_find_no_element(name: Any) -> None:
    merged = _merged({"containers": [{"name": name}, {"name": "one", "image": "k"}]})
    assert [item["name"] for item in merged["containers"]] == [name, "one", "two"]
    ordered = _merged({"$setElementOrder/containers": [{"name": name}, {"name": "two"}], "containers": []})
    assert [item["name"] for item in ordered["containers"]] == ["one", "two"]


def test_bodies_must_be_objects() -> None:
    assert decode_strategic_patch(None) == {}
    with pytest.raises(StatusError) as caught:
        decode_strategic_patch([])
    assert (
        caught.value.message == "json: cannot unmarshal array into Go value of type map[string]interface {}"
    )


def test_results_of_the_wrong_type_are_reported_with_the_patch() -> None:
    error = invalid_patch({"data": {"x": 5}}, "cannot convert int64 to string")
    assert error.message == (
        ' "" is invalid: patch: Invalid value: "map[data:map[x:5]]": cannot convert int64 to string'
    )


_ELEMENTS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"image": st.sampled_from("xy")}),
    unique_by=lambda element: element["name"],
    max_size=4,
)


@given(_ELEMENTS, _ELEMENTS)
def test_merging_keeps_every_element_once_and_is_idempotent(
    live: list[JsonObject], patch: list[JsonObject]
) -> None:
    once = strategic_merge({"containers": live}, {"containers": patch}, _SCHEMA)
    names = _names(once)
    assert sorted(names) == sorted({item["name"] for item in [*live, *patch]})
    assert strategic_merge(once, {"containers": patch}, _SCHEMA) == once
    named = [name for name in names if name in {item["name"] for item in patch}]
    assert named == [item["name"] for item in patch]
