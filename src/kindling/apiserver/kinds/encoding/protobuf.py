"""Built-in objects in protobuf, as typed Kubernetes clients send them (``kubectl create``, ``kubectl auth``).

A body is the magic ``k8s\\0`` and an envelope: 1 type ({1 apiVersion, 2 kind}), 2 the object, 3 its encoding,
4 its media type (empty: protobuf). What a field is follows from the published schema of the kind;
``protobuf_numbers.json`` adds the numbers: by definition, ``field=number`` ("*Name=number" is a struct whose
fields stand in the surrounding JSON object). Numbers never change, so the table may lag behind the schemas:
fields that it does not know are left out where they are empty, and refuse the body where they are not.
Answers are JSON, which such clients accept.

The numbers are facts of the wire. Nine in ten stand in the ``generated.proto`` files of Debian's packages
golang-k8s-api-dev and golang-k8s-apimachinery-dev (0.32) and kubernetes (source, 1.20: definitions and
aggregation), against which the table was checked; the fields that are newer were looked up one by one.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.protobuf import Malformed, Value, fields_of, read_varint
from kubecore.schema.model import Schema

from . import wire

MAGIC = b"k8s\0"
_TABLE = Path(__file__).with_name("protobuf_numbers.json")
_JSON = "application/json"
_ACCEPTED_INSTEAD = (_JSON, "application/yaml")
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_DELETE_OPTIONS = f"{_META}.DeleteOptions"
_MAX_DEPTH = 100


def decode(raw: bytes) -> JsonObject:
    """The JSON form of a protobuf body.

    Raises StatusError: 415 for kinds whose numbers are not known, 400 for bodies that cannot be read.
    """
    try:
        return _decode(raw)
    except (Malformed, UnicodeDecodeError, struct.error, RecursionError, orjson.JSONDecodeError) as error:
        raise errors.bad_request(f"the protobuf body cannot be read: {error}") from error


def _decode(raw: bytes) -> JsonObject:
    if not raw.startswith(MAGIC):
        raise Malformed("it does not start with the expected prefix")
    envelope = dict(fields_of(raw[len(MAGIC) :]))
    names = dict(fields_of(_bytes(envelope.get(1, b""))))
    api_version, kind = _text(names.get(1, b"")), _text(names.get(2, b""))
    content, content_type = _bytes(envelope.get(2, b"")), _text(envelope.get(4, b""))
    if content_type == _JSON:
        document = orjson.loads(content)
        if not isinstance(document, dict):
            raise Malformed("its JSON is no object")
        return document
    group, _, version = api_version.rpartition("/")
    try:
        name = _DELETE_OPTIONS if kind == "DeleteOptions" else builtin_schemas().name_of(group, version, kind)
    except KeyError:
        name = ""
    if name not in _numbers():
        raise errors.unsupported_media_type(_ACCEPTED_INSTEAD)
    schema = builtin_schemas().schema(name)
    document = {"apiVersion": api_version, "kind": kind, **_object(content, name, schema)}
    # Unset values are encoded, too; in JSON they are omitted.
    return wire.normalize(document, schema)


@cache
def _numbers() -> dict[str, dict[int, str]]:
    """Names of fields by number, by definition."""
    table: dict[str, str] = orjson.loads(_TABLE.read_bytes())
    return {
        name: {int(number): field for field, _, number in (entry.partition("=") for entry in text.split())}
        for name, text in table.items()
    }


def _object(data: bytes, name: str, schema: Schema, depth: int = 0) -> JsonObject:
    """A message of definition `name`; `schema` has its JSON fields."""
    if depth > _MAX_DEPTH:
        raise Malformed("it is nested too deeply")
    numbers = _numbers().get(name, {})
    document: JsonObject = {}
    for number, value in fields_of(data):
        field = numbers.get(number)
        if field is None:
            if not is_empty(value):
                raise Malformed(f"field {number} of {name} is not known to this server; send JSON instead")
        elif field.startswith("*"):
            embedded = f"{name.rpartition('.')[0]}.{field[1:]}"
            document.update(_object(_bytes(value), embedded, schema, depth + 1))
        else:
            _set(document, field, value, schema.properties[field], depth + 1)
    return document


def is_empty(value: Value) -> bool:
    """Whether a value is empty: zero, no bytes, or a message that has only such values."""
    if isinstance(value, int):
        return value == 0
    try:
        return all(is_empty(nested) for _, nested in fields_of(value))
    except Malformed:
        return False


def _set(document: JsonObject, field: str, value: Value, schema: Schema, depth: int) -> None:
    if schema.type == "array":
        element = schema.items
        if element is None:
            raise Malformed(f"{field} is a list of nothing known")
        found = document.setdefault(field, [])
        if element.type == "integer" and isinstance(value, bytes):
            position = 0
            while position < len(value):
                number, position = read_varint(value, position)
                found.append(_signed(number))
        else:
            found.append(_value(value, element, depth))
    elif isinstance(schema.additional_properties, Schema) and not schema.properties:
        entry = dict(fields_of(_bytes(value)))
        key = _text(entry.get(1, b""))
        element = schema.additional_properties
        if element.type == "array":
            # Lists as values of maps travel in a message of their own.
            document.setdefault(field, {})[key] = [
                _text(item) for _, item in fields_of(_bytes(entry.get(2, b"")))
            ]
        else:
            document.setdefault(field, {})[key] = _value(entry.get(2, b""), element, depth)
    else:
        document[field] = _value(value, schema, depth)


def _value(value: Value, schema: Schema, depth: int) -> Any:
    special = (schema.definition or "").rpartition(".")[2]
    if special in _SPECIAL:
        return _SPECIAL[special](_bytes(value))
    if special in _SCHEMA_OR:
        return _schema_or(_bytes(value), schema, depth)
    if schema.type == "string":
        return base64.b64encode(_bytes(value)).decode() if schema.format == "byte" else _text(value)
    if schema.type == "integer":
        return _signed(_number(value))
    if schema.type == "boolean":
        return bool(_number(value))
    if schema.type == "number":
        return struct.unpack("<d", _bytes(value))[0]
    return _object(_bytes(value), schema.definition or "", schema, depth)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _number(value: Value) -> int:
    if isinstance(value, bytes):
        raise Malformed("text where a number belongs")
    return value


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise Malformed("a number where text or an object belongs")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode()


def _quantity(data: bytes) -> str:
    return _text(dict(fields_of(data)).get(1, b"0")) or "0"


def _int_or_string(data: bytes) -> int | str:
    found = dict(fields_of(data))
    return _text(found.get(3, b"")) if found.get(1, 0) else _signed(_number(found.get(2, 0)))


def _moment(data: bytes) -> datetime | None:
    if not data:
        return None
    found = dict(fields_of(data))
    seconds, nanos = _signed(_number(found.get(1, 0))), _number(found.get(2, 0))
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise Malformed("a time is out of range") from error


def _time(data: bytes) -> str | None:
    moment = _moment(data)
    return times.format_time(moment) if moment else None


def _micro_time(data: bytes) -> str | None:
    moment = _moment(data)
    return times.format_micro_time(moment) if moment else None


def _nested_json(data: bytes) -> Any:
    text = _bytes(dict(fields_of(data)).get(1, b""))
    return orjson.loads(text) if text else None


def _schema_or(data: bytes, schema: Schema, depth: int) -> Any:
    """A schema (of a custom resource), or instead of it a boolean, a list of schemas, or a list of texts."""
    prefix, _, special = (schema.definition or "").rpartition(".")
    name = f"{prefix}.JSONSchemaProps"
    nested = builtin_schemas().schema(name)

    def whole(value: Value) -> JsonObject:
        return wire.normalize(_object(_bytes(value), name, nested, depth + 1), nested)

    whole_number, other_number = (2, 1) if special == "JSONSchemaPropsOrBool" else (1, 2)
    others: list[Value] = []
    for number, value in fields_of(data):
        if number == whole_number:
            return whole(value)
        if number == other_number:
            others.append(value)
    if special == "JSONSchemaPropsOrBool":
        return any(others)
    if special == "JSONSchemaPropsOrStringArray":
        return [_text(value) for value in others]
    return [whole(value) for value in others]


_SCHEMA_OR = ("JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
_SPECIAL = {
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Time": _time,
    "MicroTime": _micro_time,
    "FieldsV1": _nested_json,
    "RawExtension": _nested_json,
    "JSON": _nested_json,
}
"""Types with a JSON form of their own."""
