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
Table = Mapping[str, tuple[int, Encoder]]
"""The fields of a message by the names of the members."""


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


def _map(encoder: Encoder, field: int = 1) -> Encoder:
    """A message that holds nothing but entries, which all stand in one field."""

    def encoded(number: int, value: Mapping[str, object]) -> bytes:
        entries = (_bytes(field, _named(name, encoder, member)) for name, member in value.items())
        return _bytes(number, b"".join(entries))

    return encoded


def _table(*forms: tuple[Encoder, Mapping[str, int]]) -> Table:
    """Fields by their forms, with their numbers."""
    return {name: (number, encoder) for encoder, numbers in forms for name, number in numbers.items()}


def _message(table: Table, value: JsonObject) -> bytes:
    """Encode the fields in a table; members called ``x-…`` use the field of ``x-``."""
    parts = []
    for name, member in value.items():
        if name.startswith("x-"):
            parts.append(_bytes(table["x-"][0], _named(name, _any, member)))
        elif name in table:
            number, encoder = table[name]
            parts.append(encoder(number, member))
    return b"".join(parts)


def _of(table: Table) -> Encoder:
    return lambda number, value: _bytes(number, _message(table, value))


def _wrapped(field: int, encoder: Encoder) -> Encoder:
    """A message that holds nothing but one field."""
    return lambda number, value: _bytes(number, encoder(field, value))


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


_REFERENCE = _table((_string, {"$ref": 1, "description": 2}))
_API_KEY = _table((_string, {"type": 1, "name": 2, "in": 3, "description": 4}), (_any, {"x-": 5}))
_EXTERNAL_DOCS = _table((_string, {"description": 1, "url": 2}), (_any, {"x-": 3}))
_SCHEMA = _table(
    (_string, {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13, "discriminator": 26}),
    (_any, {"default": 5, "example": 30, "x-": 31}),
    (_double, {"multipleOf": 6, "maximum": 7, "minimum": 9}),
    (_integer, {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "maxLength": 11, "minLength": 12}),
    (_integer, {"maxItems": 14, "minItems": 15, "uniqueItems": 16, "maxProperties": 17, "minProperties": 18}),
    (_integer, {"readOnly": 27}),
    (_strings, {"required": 19}),
    (_anys, {"enum": 20}),
    (_additional_properties, {"additionalProperties": 21}),
    (_type, {"type": 22}),
    (_items, {"items": 23}),
    (_each(_schema), {"allOf": 24}),
    (_map(_schema), {"properties": 25}),
    (_of(_EXTERNAL_DOCS), {"externalDocs": 29}),
)
_BODY_PARAMETER = _table(
    (_string, {"description": 1, "name": 2, "in": 3}),
    (_integer, {"required": 4}),
    (_schema, {"schema": 5}),
    (_any, {"x-": 6}),
)
_PATH_PARAMETER = _table(
    (_integer, {"required": 1, "uniqueItems": 19}),
    (_string, {"in": 2, "description": 3, "name": 4, "type": 5}),
)
_QUERY_PARAMETER = _table(
    (_integer, {"required": 1, "uniqueItems": 20}),
    (_string, {"in": 2, "description": 3, "name": 4, "type": 6}),
)
_PLACES = {"query": (3, _QUERY_PARAMETER), "path": (4, _PATH_PARAMETER)}
_RESPONSE = _table((_string, {"description": 1}), (_wrapped(1, _schema), {"schema": 2}), (_any, {"x-": 5}))
_OPERATION = _table(
    (_strings, {"tags": 1, "produces": 6, "consumes": 7, "schemes": 10}),
    (_string, {"summary": 2, "description": 3, "operationId": 5}),
    (_each(_parameter), {"parameters": 8}),
    (_map(_response_value), {"responses": 9}),
    (_integer, {"deprecated": 11}),
    (_any, {"x-": 13}),
)
_PATH_ITEM = _table(
    (_of(_OPERATION), {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}),
    (_each(_parameter), {"parameters": 9}),
    (_any, {"x-": 10}),
)
_INFO = _table((_string, {"title": 1, "version": 2, "description": 3}))
_DOCUMENT = _table(
    (_string, {"swagger": 1}),
    (_of(_INFO), {"info": 2}),
    (_map(_of(_PATH_ITEM), field=2), {"paths": 8}),
    (_map(_schema), {"definitions": 9}),
    (_each(_map(_wrapped(1, _strings))), {"security": 12}),
    # Keys are the only kind of security that we publish.
    (_map(_wrapped(2, _of(_API_KEY))), {"securityDefinitions": 13}),
    (_any, {"x-": 16}),
)
