"""Documents whose equal parts are one object."""

from __future__ import annotations

import orjson

from kubecore.sharing import with_shared_parts

TEXT = b'{"a": {"type": "string", "list": [1, {"x": "y"}]}, "b": {"type": "string", "list": [1, {"x": "y"}]}}'


def test_equal_parts_become_one_object() -> None:
    shared = with_shared_parts(orjson.loads(TEXT))
    assert shared == orjson.loads(TEXT)
    assert shared["a"] is shared["b"]
    assert shared["a"]["list"][1] is shared["b"]["list"][1]


def test_parts_that_differ_in_a_type_alone_stay_apart() -> None:
    document = {"flag": [True], "number": [1], "fraction": [1.0], "none": [None], "empty": {}, "no": []}
    shared = with_shared_parts(document)
    assert [type(shared[name][0]) for name in ("flag", "number", "fraction")] == [bool, int, float]
    assert shared["none"] == [None]
    assert shared["empty"] == {}
    assert shared["no"] == []


def test_names_and_values_of_a_part_are_told_apart() -> None:
    shared = with_shared_parts({"one": {"a": "b"}, "other": {"b": "a"}, "list": ["a", "b"]})
    assert shared == {"one": {"a": "b"}, "other": {"b": "a"}, "list": ["a", "b"]}


def test_the_given_document_is_left_alone() -> None:
    document = orjson.loads(TEXT)
    with_shared_parts(document)
    assert document["a"] is not document["b"]
