"""Schemas of custom resource definitions must be structural."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.fields import FieldPath
from kubecore.schema.structural import check_structural


def messages(raw: dict[str, Any]) -> list[str]:
    return [error.message() for error in check_structural(raw, FieldPath("s"))]


def field(raw: dict[str, Any]) -> list[str]:
    return messages({"type": "object", "properties": {"a": raw}})


A = "s.properties[a]"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, [f"{A}.type: Required value: must not be empty for specified object fields"]),
        (
            {"type": "odd"},
            [
                f'{A}.type: Unsupported value: "odd": supported values: "array", "boolean", "integer", '
                '"number", "object", "string"'
            ],
        ),
        ({"type": "array"}, [f"{A}.items: Required value: must be specified"]),
        (
            {"type": "array", "items": {}},
            [f"{A}.items.type: Required value: must not be empty for specified array items"],
        ),
        (
            {"type": "string", "pattern": "("},
            [
                f'{A}.pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: '
                "error parsing regexp: missing closing ): `(`"
            ],
        ),
        ({"$ref": "#/x"}, [f"{A}.$ref: Forbidden: $ref is not supported"]),
        (
            {"type": "string", "default": 5},
            [f'{A}.default: Invalid value: "integer":  in body must be of type string: "integer"'],
        ),
        (
            {"type": "string", "anyOf": [{"pattern": "a", "description": "no"}]},
            [f"{A}.anyOf[0].description: Forbidden: must be empty to be structural"],
        ),
        ({"type": "object", "oneOf": [{"properties": {"b": {"minimum": 1}}}]}, []),
        (
            {"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]},
            [f"{A}.allOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural"],
        ),
        (
            {"type": "object", "additionalProperties": False, "properties": {"b": {"type": "string"}}},
            [
                f"{A}.additionalProperties: Forbidden: additionalProperties cannot be set to false",
                f"{A}.additionalProperties: Forbidden: additionalProperties and properties "
                "are mutual exclusive",
            ],
        ),
        ({"type": "object", "additionalProperties": False}, []),
        ({"type": "string", "anyOf": [{"type": "integer"}, {"type": "string"}]}, []),
        (
            {"type": "string", "anyOf": [{"type": "integer"}]},
            [f"{A}.anyOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            [
                f"{A}.items.properties[k].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ],
        ),
    ],
)
def test_a_field_schema_that_is_not_allowed_is_refused(raw: dict[str, Any], expected: list[str]) -> None:
    assert field(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "nullable": True, "default": None},
        {"type": "object", "additionalProperties": True, "properties": {"b": {"type": "string"}}},
        {"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "x"}}},
    ],
)
def test_a_structural_field_schema_passes(raw: dict[str, Any]) -> None:
    assert field(raw) == []


def test_the_root_must_be_an_object() -> None:
    assert messages({"type": "string"}) == ['s.type: Invalid value: "string": must be object at the root']
    assert messages({}) == ["s.type: Required value: must not be empty at the root"]


def test_metadata_may_be_narrowed_to_names_only() -> None:
    narrow = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}
    assert messages({"type": "object", "properties": {"metadata": narrow}}) == []
    labels = {"type": "object", "properties": {"labels": {"type": "object"}}}
    assert messages({"type": "object", "properties": {"metadata": labels}}) == [
        "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, "
        "but metadata is implicitly specified"
    ]


def test_branches_of_the_root_repeat_fields_only() -> None:
    raw = {"type": "object", "oneOf": [{"properties": {"b": {"minimum": 1}}}]}
    assert messages(raw) == [
        "s.properties[b]: Required value: because it is defined in s.oneOf[0].properties[b]"
    ]


def test_a_keyword_that_kubernetes_lacks_is_told_once() -> None:
    assert messages({"type": "string", "$schema": "x"}) == [
        "s: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"
    ]
    assert messages({"type": "array", "items": [{"type": "string"}]}) == [
        "s.items: Forbidden: items must be a schema object and not an array"
    ]
