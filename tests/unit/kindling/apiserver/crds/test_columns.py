"""Printer columns show values of their type, and nothing for others."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.crds.columns import column_table


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("string", "x", "x"),
        ("string", ["a", "b"], '["a","b"]'),
        ("string", {"a": 1}, '{"a":1}'),
        ("string", True, "true"),
        ("integer", 5, 5),
        ("integer", "5", None),
        ("number", 2.5, 2.5),
        ("boolean", True, True),
        ("boolean", "maybe", None),
        ("date", "never", "<invalid>"),
        ("date", 5, None),
    ],
)
def test_a_cell_shows_what_fits_its_column(kind: str, value: Any, cell: Any) -> None:
    table = column_table([{"name": "V", "type": kind, "jsonPath": ".spec.v"}])
    assert table.cells({"metadata": {"name": "n"}, "spec": {"v": value}}) == ["n", cell]
    assert table.cells({"metadata": {"name": "n"}}) == ["n", None]


def test_without_columns_name_and_age_show() -> None:
    assert [column.name for column in column_table([]).columns] == ["Name", "Age"]
