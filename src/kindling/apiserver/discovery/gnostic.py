"""The OpenAPI 2 document in protobuf, the only form in which kubectl asks for it (to check lists, say).

The messages are those of ``openapiv2/OpenAPIv2.proto`` in google/gnostic-models: a field is found by the
member's name in JSON, and the tables below say its number and form. What a member may be of several forms
for (a schema's ``type``, a parameter) has a wrapping message of its own. Free values travel as YAML text;
ours is JSON, which is YAML.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from kubecore.json import JsonObject
from kubecore.protobuf import BYTES, FIXED64, VARINT, varint

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OLD_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""The name of the same that clients up to now ask for."""

Encoder = Callable[[int, Any], bytes]
"""The field of a number with a value: key and content."""


def encode(document: JsonObject) -> bytes:
    """The document as a message, without members that the format does not have."""
    return _message(_DOCUMENT, document)


def _bytes(number: int, content: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def _string(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _strings(number: int, values: list[str]) -> bytes:
    return b"".join(_string(number, value) for value in values)


def _integer(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(int(value) & (1 << 64) - 1)


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def _any(number: int, value: object) -> bytes:
    return _bytes(number, _string(2, orjson.dumps(value).decode()))


def _anys(number: int, values: list[object]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _named(name: str, encoder: Encoder, value: object) -> bytes:
    """An entry of a map: 1 the name, 2 the value."""
    return _string(1, name) + encoder(2, value)


def _map(encoder: Encoder) -> Encoder:
    """A message that holds nothing but entries, which stand in its field 1."""

    def encoded(number: int, value: Mapping[str, object]) -> bytes:
        entries = (_bytes(1, _named(name, encoder, member)) for name, member in value.items())
        return _bytes(number, b"".join(entries))

    return encoded


def _message(table: Mapping[str, tuple[int, Encoder]], value: JsonObject) -> bytes:
    """Encode the fields in a table; members called ``x-…`` use the field of ``x-``."""
    parts = []
    for name, member in value.items():
        if name.startswith("x-"):
            parts.append(_bytes(table["x-"][0], _named(name, _any, member)))
        elif name in table:
            number, encoder = table[name]
            parts.append(encoder(number, member))
    return b"".join(parts)


def _of(table: Mapping[str, tuple[int, Encoder]]) -> Encoder:
    return lambda number, value: _bytes(number, _message(table, value))


def _each(encoder: Encoder) -> Encoder:
    return lambda number, values: b"".join(encoder(number, value) for value in values)


def _schema(number: int, value: JsonObject) -> bytes:
    return _bytes(number, _message(_SCHEMA, value))


def _additional_properties(number: int, value: JsonObject | bool) -> bytes:
    return _bytes(number, _integer(2, value) if isinstance(value, bool) else _schema(1, value))


def _type(number: int, value: str | list[str]) -> bytes:
    return _bytes(number, _strings(1, [value] if isinstance(value, str) else value))


def _items(number: int, value: JsonObject | list[JsonObject]) -> bytes:
    return _bytes(number, _each(_schema)(1, value if isinstance(value, list) else [value]))


def _parameter(number: int, value: JsonObject) -> bytes:
    """ParametersItem: a reference, or a parameter, which is one of a body or one of four other places."""
    if "$ref" in value:
        return _bytes(number, _of(_REFERENCE)(2, value))
    where = value["in"]
    if where == "body":
        inner = _of(_BODY_PARAMETER)(1, value)
    else:
        form, table = _PLACES[where]
        inner = _bytes(2, _of(table)(form, value))
    return _bytes(number, _bytes(1, inner))


def _response_value(number: int, value: JsonObject) -> bytes:
    if "$ref" in value:
        return _bytes(number, _of(_REFERENCE)(2, value))
    return _bytes(number, _of(_RESPONSE)(1, value))


def _responses(number: int, value: JsonObject) -> bytes:
    return _bytes(number, b"".join(_bytes(1, _named(*_entry(code, it))) for code, it in value.items()))


def _entry(code: str, response: JsonObject) -> tuple[str, Encoder, JsonObject]:
    return code, _response_value, response


def _paths(number: int, value: JsonObject) -> bytes:
    entries = (_bytes(2, _named(path, _of(_PATH_ITEM), item)) for path, item in value.items())
    return _bytes(number, b"".join(entries))


def _api_key(number: int, value: JsonObject) -> bytes:
    """SecurityDefinitionsItem: keys are the only kind that we publish."""
    return _bytes(number, _of(_API_KEY)(2, value))


def _string_array(number: int, values: list[str]) -> bytes:
    return _bytes(number, _strings(1, values))


_REFERENCE: dict[str, tuple[int, Encoder]] = {"$ref": (1, _string), "description": (2, _string)}
_API_KEY: dict[str, tuple[int, Encoder]] = {
    "type": (1, _string),
    "name": (2, _string),
    "in": (3, _string),
    "description": (4, _string),
    "x-": (5, _any),
}
_EXTERNAL_DOCS: dict[str, tuple[int, Encoder]] = {
    "description": (1, _string),
    "url": (2, _string),
    "x-": (3, _any),
}
_SCHEMA: dict[str, tuple[int, Encoder]] = {
    "$ref": (1, _string),
    "format": (2, _string),
    "title": (3, _string),
    "description": (4, _string),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _integer),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _integer),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _string),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _integer),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
    "required": (19, _strings),
    "enum": (20, _anys),
    "additionalProperties": (21, _additional_properties),
    "type": (22, _type),
    "items": (23, _items),
    "allOf": (24, _each(_schema)),
    "properties": (25, _map(_schema)),
    "discriminator": (26, _string),
    "readOnly": (27, _integer),
    "externalDocs": (29, _of(_EXTERNAL_DOCS)),
    "example": (30, _any),
    "x-": (31, _any),
}
_BODY_PARAMETER: dict[str, tuple[int, Encoder]] = {
    "description": (1, _string),
    "name": (2, _string),
    "in": (3, _string),
    "required": (4, _integer),
    "schema": (5, _schema),
    "x-": (6, _any),
}
_PATH_PARAMETER: dict[str, tuple[int, Encoder]] = {
    "required": (1, _integer),
    "in": (2, _string),
    "description": (3, _string),
    "name": (4, _string),
    "type": (5, _string),
    "uniqueItems": (19, _integer),
}
_QUERY_PARAMETER: dict[str, tuple[int, Encoder]] = {
    "required": (1, _integer),
    "in": (2, _string),
    "description": (3, _string),
    "name": (4, _string),
    "type": (6, _string),
    "uniqueItems": (20, _integer),
}
_PLACES = {"query": (3, _QUERY_PARAMETER), "path": (4, _PATH_PARAMETER)}
_RESPONSE: dict[str, tuple[int, Encoder]] = {
    "description": (1, _string),
    "schema": (2, lambda number, value: _bytes(number, _schema(1, value))),
    "x-": (5, _any),
}
_OPERATION: dict[str, tuple[int, Encoder]] = {
    "tags": (1, _strings),
    "summary": (2, _string),
    "description": (3, _string),
    "operationId": (5, _string),
    "produces": (6, _strings),
    "consumes": (7, _strings),
    "parameters": (8, _each(_parameter)),
    "responses": (9, _responses),
    "schemes": (10, _strings),
    "deprecated": (11, _integer),
    "x-": (13, _any),
}
_PATH_ITEM: dict[str, tuple[int, Encoder]] = {
    "get": (2, _of(_OPERATION)),
    "put": (3, _of(_OPERATION)),
    "post": (4, _of(_OPERATION)),
    "delete": (5, _of(_OPERATION)),
    "options": (6, _of(_OPERATION)),
    "head": (7, _of(_OPERATION)),
    "patch": (8, _of(_OPERATION)),
    "parameters": (9, _each(_parameter)),
    "x-": (10, _any),
}
_INFO: dict[str, tuple[int, Encoder]] = {
    "title": (1, _string),
    "version": (2, _string),
    "description": (3, _string),
}
_DOCUMENT: dict[str, tuple[int, Encoder]] = {
    "swagger": (1, _string),
    "info": (2, _of(_INFO)),
    "paths": (8, _paths),
    "definitions": (9, _map(_schema)),
    "security": (12, _each(_map(_string_array))),
    "securityDefinitions": (13, _map(_api_key)),
    "x-": (16, _any),
}
