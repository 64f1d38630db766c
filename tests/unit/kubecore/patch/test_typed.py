"""Comparing, merging and cutting documents by their schema."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kubecore.patch.widgets import WIDGET, widget

from kubecore.json import JsonObject, deep_copy
from kubecore.patch.field_types import TypedError, object_type
from kubecore.patch.typed import ABSENT, compare, field_set, merge, remove
from kubecore.patch.typed_validation import validate

_KIND = object_type(WIDGET)


def _spec(tree: JsonObject) -> Any:
    return tree.get("f:spec")


def test_fields_of_added_containers_and_the_containers_belong_to_whoever_adds_them() -> None:
    difference = compare(_KIND, widget(), widget(keyed=[{"k": "1", "v": "x"}], map={"a": "1"}, set=["s"]))
    assert _spec(difference.added) == {
        "f:keyed": {".": {}, 'k:{"k":"1"}': {".": {}, "f:k": {}, "f:v": {}}},
        "f:map": {".": {}, "f:a": {}},
        "f:set": {".": {}, 'v:"s"': {}},
    }
    assert not difference.modified and not difference.removed


def test_changes_are_found_where_they_are() -> None:
    old = widget(
        keyed=[{"k": "1", "v": "x"}, {"k": "2"}], set=["a", "b"], atomic=["p"], amap={"z": "1"}, count=1
    )
    new = widget(
        keyed=[{"k": "1", "v": "y"}, {"k": "3"}], set=["b", "c"], atomic=["q"], amap={"z": "2"}, count=2
    )
    difference = compare(_KIND, old, new)
    assert _spec(difference.modified) == {
        "f:keyed": {'k:{"k":"1"}': {"f:v": {}}},
        "f:atomic": {},
        "f:amap": {},
        "f:count": {},
    }
    assert _spec(difference.added) == {
        "f:keyed": {'k:{"k":"3"}': {".": {}, "f:k": {}}},
        "f:set": {'v:"c"': {}},
    }
    assert _spec(difference.removed) == {
        "f:keyed": {'k:{"k":"2"}': {".": {}, "f:k": {}}},
        "f:set": {'v:"a"': {}},
    }


def test_the_order_of_keyed_elements_is_no_difference() -> None:
    assert not compare(_KIND, widget(keyed=[{"k": "1"}, {"k": "2"}]), widget(keyed=[{"k": "2"}, {"k": "1"}]))


def test_unknown_values_are_compared_by_field_and_their_lists_whole() -> None:
    difference = compare(
        _KIND, widget(free={"a": {"b": 1}, "l": [1]}), widget(free={"a": {"b": 2}, "l": [2]})
    )
    assert _spec(difference.modified) == {"f:free": {"f:a": {"f:b": {}}, "f:l": {}}}
    other = compare(_KIND, widget(free={"a": {"b": 1}}), widget(free={"a": [1]}))
    assert _spec(other.modified) == {"f:free": {"f:a": {}}}


def test_repeated_elements_are_owned_together() -> None:
    once, twice = widget(keyed=[{"k": "1", "v": "x"}]), widget(keyed=[{"k": "1"}, {"k": "1", "v": "y"}])
    assert _spec(compare(_KIND, once, twice).added) == {"f:keyed": {'k:{"k":"1"}': {}}}
    back = compare(_KIND, twice, once)
    assert _spec(back.added) == {"f:keyed": {'k:{"k":"1"}': {".": {}, "f:k": {}, "f:v": {}}}}


def test_a_missing_key_has_its_default() -> None:
    assert not compare(
        _KIND, widget(ports=[{"port": 1, "protocol": "TCP"}]), widget(ports=[{"port": 1, "protocol": "TCP"}])
    )
    difference = compare(_KIND, widget(ports=[{"port": 1}]), widget(ports=[{"port": 1, "protocol": "TCP"}]))
    key = 'k:{"port":1,"protocol":"TCP"}'
    assert _spec(difference.added) == {"f:ports": {key: {"f:protocol": {}}}}


def test_a_configuration_claims_its_leaves_but_not_the_containers_of_named_fields() -> None:
    claimed = field_set(
        _KIND,
        widget(
            keyed=[{"k": "1", "inner": {"a": "x"}}],
            set=["a"],
            atomic=[],
            map={"m": "1"},
            amap={},
            free={"x": {"y": [1]}},
        ),
    )
    assert _spec(claimed) == {
        "f:keyed": {'k:{"k":"1"}': {".": {}, "f:k": {}, "f:inner": {"f:a": {}}}},
        "f:set": {'v:"a"': {}},
        "f:atomic": {},
        "f:map": {"f:m": {}},
        "f:amap": {},
        "f:free": {"f:x": {".": {}, "f:y": {}}},
    }


def test_empty_maps_are_claimed_and_empty_lists_are_not() -> None:
    assert _spec(field_set(_KIND, widget(map={}, keyed=[], set=[]))) == {"f:map": {}}


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        (["a", "b"], ["c"], ["a", "b", "c"]),
        (["a"], ["b", "a"], ["b", "a"]),
        (["x", "a"], ["b", "a"], ["x", "b", "a"]),
        (["b", "a", "x"], ["a", "b", "c"], ["a", "x", "b", "c"]),
        (["a", "x", "b"], ["b", "a"], ["x", "b", "a"]),
        (["a", "a", "b"], ["b"], ["a", "a", "b"]),
        ([], ["a"], ["a"]),
        (["a"], [], ["a"]),
    ],
)
def test_merged_lists_follow_the_order_that_is_applied(
    live: list[str], applied: list[str], merged: list[str]
) -> None:
    before = widget(set=live)
    assert merge(_KIND, before, widget(set=applied))["spec"]["set"] == merged
    assert before == widget(set=live)


def test_maps_merge_and_atomic_values_are_replaced() -> None:
    live = widget(map={"a": "1", "b": "2"}, amap={"a": "1"}, atomic=["x"], free={"p": {"q": 1}, "l": [1]})
    applied = widget(map={"b": "3"}, amap={"c": "1"}, atomic=["y"], free={"p": {"r": 2}, "l": [2]})
    assert merge(_KIND, live, applied)["spec"] == {
        "map": {"a": "1", "b": "3"},
        "amap": {"c": "1"},
        "atomic": ["y"],
        "free": {"p": {"q": 1, "r": 2}, "l": [2]},
    }


def test_elements_merge_field_by_field() -> None:
    live = widget(keyed=[{"k": "1", "v": "x", "inner": {"a": "1"}}])
    applied = widget(keyed=[{"k": "1", "inner": {"b": "2"}}])
    assert merge(_KIND, live, applied)["spec"]["keyed"] == [
        {"k": "1", "v": "x", "inner": {"a": "1", "b": "2"}}
    ]


def test_an_applied_null_leaves_what_a_container_has() -> None:
    assert merge(_KIND, widget(map={"a": "1"}), widget(map=None))["spec"]["map"] == {"a": "1"}
    assert merge(_KIND, ABSENT, {"x": 1}) == {"x": 1}
    assert merge(_KIND, {"x": 1}, ABSENT) == {"x": 1}


def test_paths_are_cut_out_and_emptied_containers_vanish() -> None:
    document = widget(keyed=[{"k": "1", "v": "x"}, {"k": "2"}], map={"a": "1"}, count=1, free={"a": {"b": 1}})
    before = deep_copy(document)
    tree = {
        "f:spec": {
            "f:keyed": {'k:{"k":"1"}': {"f:v": {}}, 'k:{"k":"2"}': {}},
            "f:map": {"f:a": {}},
            "f:free": {"f:a": {"f:b": {}}},
        }
    }
    assert remove(_KIND, document, tree)["spec"] == {"keyed": [{"k": "1"}], "count": 1}
    assert document == before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"map": {"m": 5}}, ".spec.map.m: expected string, got &value.valueUnstructured{Value:5}"),
        ({"map": {"m": {"a": ["x", None]}}}, None),
        ({"count": "x"}, ".spec.count: expected numeric (int or float), got string"),
        ({"count": True}, ".spec.count: expected numeric (int or float), got bool"),
        ({"flag": 1}, ".spec.flag: expected boolean, got &{1}"),
        ({"either": {"a": 1}}, ".spec.either: expected any scalar, got &{map[a:1]}"),
        ({"unknown": 1}, ".spec.unknown: field not declared in schema"),
        ({"map": ["x"]}, ".spec.map: expected map, got &{[x]}"),
        ({"atomic": {"a": 1}}, ".spec.atomic: expected list, got &{map[a:1]}"),
        ({"atomic": [1]}, ".spec.atomic[0]: expected string, got &value.valueUnstructured{Value:1}"),
        (
            {"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]},
            '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]',
        ),
        (
            {"keyed": [{"v": "x"}]},
            ".spec.keyed: element 0: associative list with keys has an element that omits all key fields "
            '["k"] '
            "(and doesn't have default values for any key fields)",
        ),
        (
            {"keyed": ["x"]},
            ".spec.keyed: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"set": [{}]},
            ".spec.set: element 0: associative list without keys has an element that's a map type",
        ),
    ],
)
def test_configurations_of_the_wrong_form_are_refused(spec: JsonObject, message: str | None) -> None:
    with pytest.raises(TypedError) as caught:
        validate(_KIND, widget(**spec))
    if message is not None:
        assert str(caught.value) == message


def test_several_errors_are_listed() -> None:
    with pytest.raises(TypedError) as caught:
        validate(_KIND, widget(count="x", flag="y"))
    assert str(caught.value).splitlines() == [
        "errors:",
        "  .spec.count: expected numeric (int or float), got string",
        "  .spec.flag: expected boolean, got &{y}",
    ]


def test_what_the_schema_allows_is_accepted() -> None:
    validate(
        _KIND,
        widget(either=1, count=1.5, flag=None, free={"any": [1, {"thing": None}]}, keyed=[{"k": "1"}]),
    )
