"""JSON patch: RFC 6902 as the API server applies it, with another implementation as the oracle."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch, decode_json_patch, is_equal

_DOCUMENT: JsonObject = {"data": {"one": "1", "a/b": "x"}, "list": [{"n": 1}, {"n": 2}, {"n": 3}]}


def _patched(*operations: JsonObject) -> Any:
    before = deep_copy(_DOCUMENT)
    result = apply_json_patch(_DOCUMENT, operations)
    assert before == _DOCUMENT, "the original must not change"
    return result


def test_operations_apply_in_order() -> None:
    result = _patched(
        {"op": "test", "path": "/data/one", "value": "1"},
        {"op": "add", "path": "/list/-", "value": {"n": 4}},
        {"op": "add", "path": "/list/0", "value": {"n": 0}},
        {"op": "remove", "path": "/list/1"},
        {"op": "replace", "path": "/data/a~1b", "value": "y"},
        {"op": "move", "from": "/data/one", "path": "/data/two"},
        {"op": "copy", "from": "/list/0", "path": "/copy"},
    )
    assert result == {
        "data": {"a/b": "y", "two": "1"},
        "list": [{"n": 0}, {"n": 2}, {"n": 3}, {"n": 4}],
        "copy": {"n": 0},
    }


def test_negative_indices_count_from_the_end() -> None:
    assert _patched({"op": "replace", "path": "/list/-1/n", "value": 9})["list"][2] == {"n": 9}
    assert len(_patched({"op": "remove", "path": "/list/-1"})["list"]) == 2


def test_replacing_an_absent_member_adds_it() -> None:
    assert _patched({"op": "replace", "path": "/data/new", "value": 1})["data"]["new"] == 1


def test_the_whole_document_can_be_replaced() -> None:
    assert _patched({"op": "replace", "path": "", "value": {"x": 1}}) == {"x": 1}


def test_null_equals_an_absent_member() -> None:
    _patched({"op": "test", "path": "/data/none", "value": None}, {"op": "test", "path": "/data/none"})


def test_a_copied_value_changes_independently() -> None:
    result = _patched(
        {"op": "copy", "from": "/list/0", "path": "/copy"},
        {"op": "replace", "path": "/copy/n", "value": 7},
        {"op": "replace", "path": "/list/0/n", "value": 8},
    )
    assert (result["copy"], result["list"][0]) == ({"n": 7}, {"n": 8})


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            {"op": "remove", "path": "/data/none"},
            "error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        (
            {"op": "add", "path": "/missing/deep", "value": 1},
            'add operation does not apply: doc is missing path: "/missing/deep": missing value',
        ),
        ({"op": "test", "path": "/data/one", "value": "2"}, "testing value /data/one failed: test failed"),
        ({"op": "odd", "path": "/data"}, "Unexpected kind: odd"),
        ({"op": "add"}, "add operation failed to decode path: missing value"),
        (
            {"op": "remove", "path": "/list/7"},
            "error in remove for path: '/list/7': "
            "Unable to access invalid index: 7: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/list/x", "value": 1},
            "error in add for path: '/list/x': value was not a proper array index: 'x'",
        ),
        (
            {"op": "replace", "path": "/list/9", "value": 1},
            "replace operation does not apply: doc is missing key: /list/9: missing value",
        ),
        (
            {"op": "move", "from": "/data/none", "path": "/x"},
            "error in move for path: 'none': Unable to remove nonexistent key: none: missing value",
        ),
        ({"op": "replace", "path": "", "value": 5}, "replace operation value must be object or array"),
        (
            {"op": "add", "path": "/data/one/deep", "value": 1},
            'add operation does not apply: doc is missing path: "/data/one/deep": missing value',
        ),
        (
            {"op": "test", "path": "/no/such", "value": 1},
            "test operation does not apply: is missing path: /no/such: missing value",
        ),
    ],
)
def test_what_does_not_apply_is_refused_with_the_server_s_text(operation: JsonObject, message: str) -> None:
    with pytest.raises(JsonPatchError) as caught:
        _patched(operation)
    assert str(caught.value) == message


def test_clients_of_patch_learn_only_that_it_was_refused() -> None:
    status = JsonPatchError("x").rejected()
    assert (status.code, status.reason) == (422, "Invalid")
    assert status.message == "the server rejected our request due to an error in our request"


def test_null_is_a_patch_without_operations() -> None:
    assert decode_json_patch(None) == []


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            {},
            400,
            "error decoding patch: json: cannot unmarshal object "
            "into Go value of type []handlers.jsonPatchOp",
        ),
        (
            ["x"],
            400,
            "error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp",
        ),
        (
            [{}] * 10001,
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
    ],
)
def test_bodies_that_are_no_patches_are_refused(body: Any, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode_json_patch(body)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_copies_are_limited_together() -> None:
    document = {"big": "x" * 1_000_000, "list": []}
    copy = {"op": "copy", "from": "/big", "path": "/list/-"}
    assert len(apply_json_patch(document, [copy] * 3)["list"]) == 3
    with pytest.raises(JsonPatchError, match="accumulated size increase of copy"):
        apply_json_patch(document, [copy] * 4)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "move", "from": "/list/0", "path": "/list/0"},
        {"op": "add", "path": "/list/0", "value": 0},
        {"op": "remove", "path": "/list/0"},
    ],
)
def test_no_request_moves_long_lists_ten_thousand_times(operation: JsonObject) -> None:
    """Each operation would take milliseconds: a request of 3 MB, a minute and more of a processor."""
    with pytest.raises(JsonPatchError, match="replace the lists as a whole"):
        apply_json_patch({"list": [0] * 1_000_000}, [operation] * 10_000)
    short = {"list": list(range(1000))}
    assert len(apply_json_patch(short, [operation] * 1000)["list"]) == {"move": 1000, "add": 2000}.get(
        operation["op"], 0
    )


def test_the_end_of_a_long_list_is_changed_as_often_as_operations_there_are() -> None:
    pair: list[JsonObject] = [
        {"op": "add", "path": "/list/-", "value": 1},
        {"op": "remove", "path": "/list/-1"},
    ]
    changes = pair * 5000
    assert len(apply_json_patch({"list": [0] * 1_000_000}, changes)["list"]) == 1_000_000


def test_truth_values_do_not_equal_numbers() -> None:
    assert not is_equal(True, 1)
    assert not is_equal({"a": [0]}, {"a": [False]})
    assert is_equal(1, 1.0)


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "~/"]))
_KEYS = st.sampled_from(["a", "b", "c", "~/"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_DOCUMENTS = st.dictionaries(_KEYS, _VALUES, max_size=4)
_POINTERS = st.lists(st.sampled_from(["a", "b", "c", "~0~1", "0", "1", "-"]), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)
_OPERATIONS = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "test"]), "path": _POINTERS, "value": _VALUES}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": _POINTERS}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "from": _POINTERS, "path": _POINTERS}),
)


@given(_DOCUMENTS, st.lists(_OPERATIONS, max_size=3))
def test_whatever_the_oracle_accepts_has_the_same_result(
    document: JsonObject, operations: list[JsonObject]
) -> None:
    try:
        expected = jsonpatch.apply_patch(deep_copy(document), operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        return
    untouched = deep_copy(document)
    try:
        result = apply_json_patch(document, operations)
    except JsonPatchError as error:
        # The oracle lets a value move into itself, and compares true with 1.
        assert any(operation["op"] in {"move", "test"} for operation in operations), error
        return
    assert result == expected
    assert document == untouched


@given(_DOCUMENTS, _DOCUMENTS)
def test_a_patch_made_by_the_oracle_leads_to_its_target(source: JsonObject, target: JsonObject) -> None:
    operations = list(jsonpatch.make_patch(source, target))
    assert apply_json_patch(source, operations) == target
