"""How schemas of custom resources are published."""

from __future__ import annotations

import pytest
from tests.support.apiserver import WIDGETS, generic_definition

from kindling.apiserver.discovery.custom_schemas import TypeMeta, list_schema, object_schema, simplified
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject

COMMON = TypeMeta({"type": "string"}, {"type": "string"}, {"$ref": "meta"}, {"$ref": "list meta"})
KIND = {"group": "example.com", "version": "v1", "kind": "Widget"}


def definition(*field_labels: str) -> ResourceDefinition:
    return generic_definition(WIDGETS, field_labels=field_labels, openapi_name="com.example.v1.Widget")


def published(raw: JsonObject, openapi: int) -> JsonObject:
    return object_schema(definition(), raw, COMMON, openapi=openapi)


def test_an_object_has_type_and_metadata_beside_its_own_fields() -> None:
    raw = {"description": "A widget.", "type": "object", "properties": {"spec": {"type": "object"}}}

    for openapi in (2, 3):
        assert published(raw, openapi) == {
            "description": "A widget.",
            "type": "object",
            "properties": {
                "spec": {"type": "object"},
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"$ref": "meta"},
            },
            "x-kubernetes-group-version-kind": [KIND],
        }


def test_an_object_that_admits_anything_names_no_field_in_openapi_2() -> None:
    raw = {"description": "Any.", "type": "object", "x-kubernetes-preserve-unknown-fields": True}

    assert published(raw, 2) == {"type": "object", "x-kubernetes-group-version-kind": [KIND]}
    assert published(raw, 3)["description"] == "Any."
    assert "metadata" in published(raw, 3)["properties"]


def test_openapi_2_leaves_out_what_it_cannot_say() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "oneOf": [{"required": ["a"]}],
        "properties": {
            "a": {"type": "string", "nullable": True},
            "b": {"type": "array", "items": {"type": "integer"}, "nullable": True},
            "c": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"d": {"type": "string"}},
            },
            "e": {"type": "array", "items": {"anyOf": [{}], "x-kubernetes-int-or-string": True}},
        },
    }

    assert simplified(schema) == {
        "type": "object",
        "properties": {
            "a": {},
            "b": {},
            "c": {"x-kubernetes-preserve-unknown-fields": True},
            "e": {"type": "array", "items": {"x-kubernetes-int-or-string": True}},
        },
    }


def test_embedded_objects_have_a_type_and_metadata_too() -> None:
    raw = {
        "type": "object",
        "properties": {"template": {"type": "object", "x-kubernetes-embedded-resource": True}},
    }

    template = published(raw, 3)["properties"]["template"]

    assert sorted(template["properties"]) == ["apiVersion", "kind", "metadata"]
    assert template["required"] == ["kind", "apiVersion"]


EITHER = [{"type": "integer"}, {"type": "string"}]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({}, {"anyOf": EITHER}),
        ({"anyOf": EITHER, "maximum": 3}, {"anyOf": EITHER, "maximum": 3}),
        ({"allOf": [{"anyOf": EITHER}]}, {"allOf": [{"anyOf": EITHER}]}),
        ({"anyOf": [{"minimum": 42}]}, {"anyOf": [{"minimum": 42}], "allOf": [{"anyOf": EITHER}]}),
        (
            {"anyOf": [{"minimum": 42}], "allOf": [{"minimum": 42}]},
            {"anyOf": [{"minimum": 42}], "allOf": [{"anyOf": EITHER}, {"minimum": 42}]},
        ),
    ],
)
def test_openapi_3_names_both_types_of_a_number_or_text(said: JsonObject, shown: JsonObject) -> None:
    marked = {"x-kubernetes-int-or-string": True}
    raw = {"type": "object", "properties": {"port": {**said, **marked}}}

    assert published(raw, 3)["properties"]["port"] == {**shown, **marked}
    assert published(raw, 2)["properties"]["port"] == {
        **{name: value for name, value in said.items() if name == "maximum"},
        **marked,
    }


def test_an_embedded_object_that_admits_anything_names_no_field_in_openapi_2() -> None:
    marks = {"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    raw = {"type": "object", "properties": {"template": {"type": "object", **marks}}}

    assert published(raw, 2)["properties"]["template"] == marks
    assert sorted(published(raw, 3)["properties"]["template"]["properties"]) == [
        "apiVersion",
        "kind",
        "metadata",
    ]


def test_defaults_and_limits_are_published_everywhere() -> None:
    spec = {"type": "integer", "default": 3, "minimum": 1, "x-kubernetes-validations": [{"rule": "self > 0"}]}
    raw = {"type": "object", "properties": {"spec": spec}}

    assert published(raw, 2)["properties"]["spec"] == published(raw, 3)["properties"]["spec"] == spec


def test_lists_and_objects_tell_which_fields_select() -> None:
    found = list_schema(definition("spec.color"), COMMON)

    assert found["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.color"}]
    assert found["properties"]["metadata"] == {"$ref": "list meta"}
    assert found["properties"]["items"]["items"] == {"$ref": "#/definitions/com.example.v1.Widget"}
    assert found["properties"]["items"]["description"].startswith("List of widgets. More info: ")
    assert found["x-kubernetes-group-version-kind"] == [{**KIND, "kind": "WidgetList"}]
