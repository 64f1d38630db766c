"""Values print as Go prints decoded JSON."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.goformat import go_print, json_type


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"b": 1, "a": ["x", None, True]}, "map[a:[x <nil> true] b:1]"),
        ({}, "map[]"),
        (1.5, "1.5"),
        ("x y", "x y"),
    ],
)
def test_values_print_without_quotes(value: Any, printed: str) -> None:
    assert go_print(value) == printed


@pytest.mark.parametrize(
    ("value", "name"),
    [(True, "bool"), ("x", "string"), (1, "number"), ([], "array"), ({}, "object"), (None, "null")],
)
def test_types_have_the_decoder_s_names(value: Any, name: str) -> None:
    assert json_type(value) == name
