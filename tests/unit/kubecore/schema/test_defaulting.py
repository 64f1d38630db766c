"""Defaults are filled in where a field is absent, at every depth."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.schema.defaulting import default
from kubecore.schema.model import custom_resource_schema

WITH_DEFAULT = {"type": "object", "properties": {"x": {"type": "string", "default": "X"}}}
SCHEMA = custom_resource_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "string", "default": "A"},
                    "off": {"type": "boolean", "default": True},
                    "made": {**WITH_DEFAULT, "default": {}},
                    "unmade": WITH_DEFAULT,
                    "list": {"type": "array", "items": WITH_DEFAULT},
                    "map": {"type": "object", "additionalProperties": WITH_DEFAULT},
                    "null": {"type": "string", "nullable": True, "default": "N"},
                    "plain": {"type": "string"},
                },
            }
        },
    }
)
ALL = {"a": "A", "off": True, "made": {"x": "X"}, "null": "N"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ALL),
        ({"a": "mine", "off": False}, {**ALL, "a": "mine", "off": False}),
        ({"a": None, "null": None}, {**ALL, "null": None}),
        ({"unmade": {}}, {**ALL, "unmade": {"x": "X"}}),
        ({"list": [{}, {"x": "y"}]}, {**ALL, "list": [{"x": "X"}, {"x": "y"}]}),
        ({"map": {"k": {}}}, {**ALL, "map": {"k": {"x": "X"}}}),
        ({"plain": None}, ALL),
    ],
)
def test_absent_fields_get_their_defaults(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    doc = {"spec": spec}
    default(doc, SCHEMA)
    assert doc["spec"] == expected


def test_nulls_without_a_default_stay_where_validation_is_to_refuse_them() -> None:
    doc: dict[str, Any] = {"spec": {"a": None, "plain": None, "list": [{"x": None}]}}
    default(doc, SCHEMA, keeps_nulls=True)
    assert doc["spec"] == {**ALL, "plain": None, "list": [{"x": "X"}]}


def test_an_absent_parent_without_default_stays_absent() -> None:
    doc: dict[str, Any] = {"kind": "A"}
    default(doc, SCHEMA)
    assert doc == {"kind": "A"}


def test_a_null_object_that_may_not_be_null_counts_as_absent() -> None:
    doc: dict[str, Any] = {"spec": None}
    default(doc, SCHEMA)
    assert doc == {}


def test_objects_never_share_a_default() -> None:
    first: dict[str, Any] = {"spec": {}}
    second: dict[str, Any] = {"spec": {}}
    default(first, SCHEMA)
    first["spec"]["made"]["x"] = "changed"
    default(second, SCHEMA)
    assert second["spec"]["made"] == {"x": "X"}
