"""JSON merge patch: the examples of RFC 7386, and the server's words for bodies that are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.patch.mergepatch import apply_merge_patch, decode_merge_patch


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc_hold(document: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(document, patch) == result


_DOCUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.integers(0, 3) | st.none(),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner) | st.lists(inner, max_size=2),
        max_leaves=6,
    ),
)


@given(_DOCUMENTS, _DOCUMENTS)
def test_patching_twice_is_patching_once_and_leaves_the_original(
    document: JsonObject, patch: JsonObject
) -> None:
    untouched = deep_copy(document)
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once
    assert document == untouched


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "Invalid JSON Patch"),
        (
            [],
            "error decoding patch: json: cannot unmarshal array "
            "into Go value of type map[string]interface {}",
        ),
        (
            5,
            "error decoding patch: json: cannot unmarshal number "
            "into Go value of type map[string]interface {}",
        ),
    ],
)
def test_bodies_that_are_no_objects_are_refused(body: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode_merge_patch(body)
    assert (caught.value.code, caught.value.message) == (400, message)
