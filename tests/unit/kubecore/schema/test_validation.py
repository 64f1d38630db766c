"""Values outside a schema are refused in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.fields import FieldPath
from kubecore.schema.embedded import validate_embedded
from kubecore.schema.list_types import validate_list_types
from kubecore.schema.model import Schema, SchemaSet, custom_resource_schema
from kubecore.schema.validation import validate


def messages(value: Any, raw: dict[str, Any]) -> list[str]:
    schema = Schema({"type": "object", "properties": {"f": raw}}, SchemaSet(open_objects=False))
    doc = {"f": value}
    return [error.message() for error in validate(doc, schema) + validate_list_types(doc, schema)]


@pytest.mark.parametrize(
    ("raw", "value", "expected"),
    [
        ({"type": "string"}, 5, 'f: Invalid value: "integer": f in body must be of type string: "integer"'),
        ({"type": "string"}, None, 'f: Invalid value: "null": f in body must be of type string: "null"'),
        ({"type": "boolean"}, 1, 'f: Invalid value: "integer": f in body must be of type boolean: "integer"'),
        (
            {"type": "integer"},
            True,
            'f: Invalid value: "boolean": f in body must be of type integer: "boolean"',
        ),
        ({"enum": ["a", "b"]}, "c", 'f: Unsupported value: "c": supported values: "a", "b"'),
        ({"enum": [1]}, 2, 'f: Unsupported value: 2: supported values: "1"'),
        ({"pattern": "^a+$"}, "b", "f: Invalid value: \"b\": f in body should match '^a+$'"),
        ({"minimum": 3}, 2, "f: Invalid value: 2: f in body should be greater than or equal to 3"),
        ({"maximum": 3}, 4, "f: Invalid value: 4: f in body should be less than or equal to 3"),
        (
            {"minimum": 3, "exclusiveMinimum": True},
            3,
            "f: Invalid value: 3: f in body should be greater than 3",
        ),
        ({"multipleOf": 5}, 7, "f: Invalid value: 7: f in body should be a multiple of 5"),
        ({"minLength": 2}, "a", 'f: Invalid value: "a": f in body should be at least 2 chars long'),
        ({"maxLength": 1}, "ab", "f: Too long: may not be more than 1 bytes"),
        ({"type": "array", "minItems": 1}, [], "f: Invalid value: 0: f in body should have at least 1 items"),
        ({"type": "array", "maxItems": 1}, [1, 2], "f: Too many: 2: must have at most 1 item"),
        (
            {"type": "object", "minProperties": 1},
            {},
            "f: Invalid value: 0: f in body should have at least 1 properties",
        ),
        ({"type": "object", "required": ["x"]}, {}, "f.x: Required value"),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in f',
        ),
        (
            {"type": "string", "format": "ipv4"},
            "x",
            'f: Invalid value: "x": f in body must be of type ipv4: "x"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            1.5,
            'f: Invalid value: "number": f in body must be of type integer,string: "number"',
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            ["a", "a"],
            'f[1]: Duplicate value: "a"',
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            [{"k": "a"}, {"k": "a", "v": 1}],
            'f[1]: Duplicate value: {"k":"a"}',
        ),
        (
            {"not": {"enum": ["a"]}},
            "a",
            '<nil>: Invalid value: "": "f" must not validate the schema (not)',
        ),
    ],
)
def test_a_broken_rule_is_named(raw: dict[str, Any], value: Any, expected: str) -> None:
    assert messages(value, raw) == [expected]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ({"type": "integer"}, 4.0),
        ({"type": "number"}, 4),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "string", "maxLength": 2}, "üü"),
        ({"type": "string", "format": "made-up"}, "x"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05.678Z"),
        ({"type": "string", "format": "duration"}, "1h30m"),
        ({"type": "string", "format": "cidr"}, "10.0.0.0/8"),
        ({"pattern": "[[:alpha:]]+"}, "abc"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}),
        ({"multipleOf": 0.1}, 0.5),
    ],
)
def test_an_allowed_value_passes(raw: dict[str, Any], value: Any) -> None:
    assert messages(value, raw) == []


def test_the_first_branch_explains_why_no_alternative_fits() -> None:
    raw = {"anyOf": [{"maximum": 1}, {"minimum": 9}]}
    assert messages(5, raw) == [
        '<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)',
        "f: Invalid value: 5: f in body should be less than or equal to 1",
    ]


def test_two_valid_alternatives_are_one_too_many() -> None:
    raw = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert messages({"a": 1, "b": 1}, raw) == [
        '<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). '
        "Found 2 valid alternatives"
    ]


def test_a_path_goes_before_fields_but_not_into_texts() -> None:
    schema = Schema({"type": "string"}, SchemaSet(open_objects=False))
    (error,) = validate(5, schema, FieldPath("spec", "default"))
    assert error.message() == (
        'spec.default: Invalid value: "integer":  in body must be of type string: "integer"'
    )


def test_a_pattern_that_explodes_elsewhere_is_matched_in_linear_time() -> None:
    assert messages("a" * 5000 + "!", {"pattern": "^(a+)+$"})


def test_embedded_resources_need_version_and_kind() -> None:
    schema = custom_resource_schema(
        {
            "type": "object",
            "properties": {
                "t": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                }
            },
        }
    )
    assert [error.message() for error in validate_embedded({"t": {}}, schema)] == [
        "t.apiVersion: Required value",
        "t.kind: Required value",
    ]
    odd = {"t": {"apiVersion": "a/b/c", "kind": "", "metadata": {"labels": {"a": "b c"}}}}
    texts = [error.message() for error in validate_embedded(odd, schema)]
    assert texts[0] == 't.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'
    assert texts[1] == 't.kind: Invalid value: "": must not be empty'
    assert texts[2].startswith('t.metadata.labels: Invalid value: "b c": ')


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"s": "ok"}, []),
        ({"n": 501}, ["n: Invalid value: 501: n in body should be less than or equal to 10"]),
        ({"list": ["a", "TOO"]}, ["list[1]: Too long: may not be more than 2 bytes"]),
        ({"map": [{"k": "y", "v": "ok"}, {"k": "x", "v": "BAD"}]}, []),
        (
            {"map": [{"k": "z", "v": "NO"}, {"k": "x", "v": "BAD"}]},
            ["map[0].v: Invalid value: \"NO\": map[0].v in body should match '^[a-z]+$'"],
        ),
        ({"need": {"y": 1}}, ["need.x: Required value"]),
    ],
)
def test_what_was_wrong_before_may_stay(change: dict[str, Any], expected: list[str]) -> None:
    """Ratcheting: only changed values must be valid."""
    word = {"type": "string", "pattern": "^[a-z]+$"}
    element = {"type": "object", "properties": {"k": {"type": "string"}, "v": word}}
    schema = Schema(
        {
            "type": "object",
            "properties": {
                "s": {"type": "string", "maxLength": 2},
                "n": {"type": "integer", "maximum": 10},
                "list": {"type": "array", "items": {"type": "string", "maxLength": 2}},
                "map": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": element,
                },
                "need": {"type": "object", "required": ["x"], "properties": {"y": {"type": "integer"}}},
            },
        }
    )
    old = {"s": "LONG", "n": 500, "list": ["TOO"], "map": [{"k": "x", "v": "BAD"}], "need": {}}
    assert [error.message() for error in validate({**old, **change}, schema, old=old)] == expected
