"""The OpenAPI document in protobuf."""

from __future__ import annotations

import json

from kindling.apiserver.discovery import gnostic
from kubecore.protobuf import fields_of

_SCHEMA = {
    "type": "object",
    "description": "A gadget.",
    "required": ["size"],
    "properties": {"size": {"type": "integer", "minimum": 1}, "more": {"$ref": "#/definitions/More"}},
    "additionalProperties": {"type": "string"},
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Gadget"}],
}


def members(message: object) -> dict[int, list[object]]:
    """The fields of a message by number."""
    assert isinstance(message, bytes)
    found: dict[int, list[object]] = {}
    for number, value in fields_of(message):
        found.setdefault(number, []).append(value)
    return found


def test_definitions_are_named_schemas() -> None:
    document = members(gnostic.encode({"swagger": "2.0", "definitions": {"Gadget": _SCHEMA}}))
    assert document[1] == [b"2.0"]
    (entry,) = members(document[9][0])[1]
    assert members(entry)[1] == [b"Gadget"]
    schema = members(members(entry)[2][0])
    assert schema[4] == [b"A gadget."]
    assert schema[19] == [b"size"]
    assert members(schema[22][0])[1] == [b"object"]
    properties = {members(entry)[1][0]: members(members(entry)[2][0]) for entry in members(schema[25][0])[1]}
    assert properties[b"more"] == {1: [b"#/definitions/More"]}
    assert members(properties[b"size"][22][0])[1] == [b"integer"]
    assert members(members(schema[21][0])[1][0])[22] == [b"\x0a\x06string"]


def test_extensions_carry_their_value_as_text() -> None:
    document = members(gnostic.encode({"definitions": {"Gadget": _SCHEMA}}))
    schema = members(members(members(document[9][0])[1][0])[2][0])
    extension = members(schema[31][0])
    assert extension[1] == [b"x-kubernetes-group-version-kind"]
    text = members(extension[2][0])[2][0]
    assert isinstance(text, bytes)
    assert json.loads(text) == _SCHEMA["x-kubernetes-group-version-kind"]


def test_parameters_stand_in_the_message_of_their_place() -> None:
    body = {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Gadget"}}
    query = {"name": "limit", "in": "query", "type": "integer", "uniqueItems": True}
    item = {"post": {"operationId": "createGadget", "parameters": [body, query], "responses": {}}}
    document = members(gnostic.encode({"paths": {"/gadgets": item}}))
    entry = members(members(document[8][0])[2][0])
    assert entry[1] == [b"/gadgets"]
    operation = members(members(entry[2][0])[4][0])
    first, second = (members(members(parameter)[1][0]) for parameter in operation[8])
    assert members(first[1][0])[2] == [b"body"]
    in_query = members(members(second[2][0])[3][0])
    assert (in_query[4], in_query[6], in_query[20]) == ([b"limit"], [b"integer"], [1])


def test_members_that_the_format_lacks_are_left_out() -> None:
    assert gnostic.encode({"definitions": {"G": {"oneOf": [], "type": "string"}}}) == gnostic.encode(
        {"definitions": {"G": {"type": "string"}}}
    )
