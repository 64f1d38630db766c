"""Values of wrong types inside schemas, which decode themselves."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.crds import strategy, validation
from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kindling.apiserver.registry import go_types
from kubecore.json import JsonObject


def definition(schema: Any) -> JsonObject:
    """A CustomResourceDefinition with one version."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"metadata": {"name": "x"}, "spec": {"group": "g.example", "versions": [version]}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"items": {"required": 1}},
            "json: cannot unmarshal number into Go struct field JSONSchemaProps.required of type []string",
        ),
        (
            {"properties": {"a": {"items": [{"properties": {"b": {"type": 7}}}]}}},
            "json: cannot unmarshal number into Go struct field "
            "JSONSchemaProps.properties.type of type string",
        ),
        (
            {"additionalProperties": {"nullable": "yes"}},
            "json: cannot unmarshal string into Go struct field JSONSchemaProps.nullable of type bool",
        ),
        ({"additionalProperties": 3}, "boolean or JSON schema expected"),
        (
            {"dependencies": {"a": ["b", 4]}},
            "json: cannot unmarshal number into Go value of type string",
        ),
        ({"additionalProperties": True, "items": "odd", "dependencies": {"a": ["b"]}}, ""),
    ],
)
def test_schemas_inside_schemas_are_checked(schema: JsonObject, said: str) -> None:
    kind = builtin_schemas().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert go_types.type_error(definition(schema), kind) == said


def test_items_of_neither_form_vanish() -> None:
    crd = definition({"type": "array", "items": "odd", "properties": {"items": {"items": 3}}})
    strategy.definition().strategy.default(crd)
    (version,) = crd["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"] == {"type": "array", "properties": {"items": {}}}


def test_nulls_in_lists_decode_to_what_is_empty() -> None:
    schema = {"required": [None], "allOf": [None], "x-kubernetes-validations": [None], "enum": [None]}
    crd = definition(schema)
    crd["spec"]["versions"].append(None)
    strategy.definition().strategy.default(crd)
    first, second = crd["spec"]["versions"]
    assert first["schema"]["openAPIV3Schema"] == {
        "required": [""],
        "allOf": [{}],
        "x-kubernetes-validations": [{}],
        "enum": [None],
    }
    assert second["name"] == ""
    assert validation.validate(crd)


@pytest.mark.parametrize(
    ("time", "part"),
    [
        ("2026-13-01T00:00:00Z", "month"),
        ("2026-02-29T00:00:00Z", "day"),
        ("2026-02-00T00:00:00+01:00", "day"),
        ("2026-02-31T24:00:00Z", "hour"),
        ("2026-01-01T00:60:00Z", "minute"),
        ("2026-01-01T00:00:60Z", "second"),
        ("2024-02-29T23:59:59Z", ""),
        ("0000-02-29T00:00:00Z", ""),
    ],
)
def test_times_that_never_are_are_refused(time: str, part: str) -> None:
    kind = builtin_schemas().kind("", "v1", "ConfigMap")
    said = go_types.type_error({"metadata": {"name": "x", "creationTimestamp": time}}, kind)
    assert said == (f'parsing time "{time}": {part} out of range' if part else "")
