"""Field paths and field errors print as the Kubernetes API prints them."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects import fields
from kubecore.objects.fields import FieldPath


def test_paths_print_fields_indices_and_keys() -> None:
    path = FieldPath("spec").child("containers").index(3).child("env", "x").key("a/b")
    assert str(path) == "spec.containers[3].env.x[a/b]"


def test_the_root_prints_as_nil() -> None:
    assert str(FieldPath()) == "<nil>"


def test_a_path_is_not_changed_by_extending_it() -> None:
    path = FieldPath("spec", "x")
    path.child("y")
    assert str(path) == "spec.x"
    assert path == FieldPath("spec").child("x")
    assert len({path, FieldPath("spec", "x")}) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (fields.required("a"), "a: Required value"),
        (fields.required("a", "why"), "a: Required value: why"),
        (fields.invalid("a", "x", "why"), 'a: Invalid value: "x": why'),
        (fields.invalid("a", None, "why"), "a: Invalid value: null: why"),
        (fields.invalid("a", [1, "b"], "why"), 'a: Invalid value: [1,"b"]: why'),
        (fields.invalid("a", True, "why"), "a: Invalid value: true: why"),
        (fields.invalid("a", fields.Verbatim("{X}"), "why"), "a: Invalid value: {X}: why"),
        (fields.duplicate("a", "x"), 'a: Duplicate value: "x"'),
        (fields.forbidden("a", "why"), "a: Forbidden: why"),
        (fields.too_long("a", 5), "a: Too long: may not be more than 5 bytes"),
        (fields.too_many("a", 3, 2), "a: Too many: 3: must have at most 2 items"),
        (fields.not_found("a", "x"), 'a: Not found: "x"'),
        (fields.type_invalid("a", "integer", "why"), 'a: Invalid value: "integer": why'),
        (fields.internal("a", "why"), "a: Internal error: why"),
        (
            fields.not_supported("a", "x", ["b", "c"]),
            'a: Unsupported value: "x": supported values: "b", "c"',
        ),
    ],
)
def test_messages_have_the_form_of_their_type(error: fields.FieldError, message: str) -> None:
    assert error.message() == message
    assert error.cause()["message"] == message.removeprefix("a: ")


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (1.0, "1"),
        (1.5, "1.5"),
        (1e21, "1e+21"),
        (1e-7, "1e-07"),
        (-2.25, "-2.25"),
        (1e20, "100000000000000000000"),
    ],
)
def test_floats_print_as_in_go(value: float, printed: str) -> None:
    assert fields.format_float(value) == printed


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a", '"a"'),
        ('"', '"\\""'),
        ("a\nb", '"a\\nb"'),
        ("ü", '"ü"'),
        ("\x00", '"\\x00"'),
        ("\u200b", '"\\u200b"'),
    ],
)
def test_strings_are_quoted_as_in_go(text: Any, quoted: str) -> None:
    assert fields.go_quote(text) == quoted
