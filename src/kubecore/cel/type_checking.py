"""Type checking of expressions against the schemas of their variables.

Compiled programs treat objects as maps of anything. Here schemas become message types for the compiler, so
that it finds fields that do not exist and comparisons that can never be true. Programs compiled this way
are checked, never run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
)

from kubecore.schema import Schema

from .escaping import cel_name
from .opaque_types import descriptor_files
from .program import CompileError, Environment

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "integer": (_Field.TYPE_INT64, cel.Type.INT),
    "number": (_Field.TYPE_DOUBLE, cel.Type.DOUBLE),
    "boolean": (_Field.TYPE_BOOL, cel.Type.BOOL),
    "string": (_Field.TYPE_STRING, cel.Type.STRING),
}
_FORMATS = {
    "date-time": (".google.protobuf.Timestamp", cel.Type.TIMESTAMP),
    "date": (".google.protobuf.Timestamp", cel.Type.TIMESTAMP),
    "duration": (".google.protobuf.Duration", cel.Type.DURATION),
}
_ANYTHING = ".google.protobuf.Value"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_STRUCT = re.compile(r"undefined field '([^']*)' not found in struct '[^']*'")


def check_types(
    text: str,
    schemas: Mapping[str, Schema],
    others: Mapping[str, str],
    *,
    escape_names: bool = True,
) -> str:
    """The compiler's type errors in `text`; `schemas` gives the schema of each variable.

    `others` are variables of plain types (see ``engine.TYPES``). Field names are escaped by ``cel_name``
    unless `escape_names` is off. Returns an empty string when there is no error.
    """
    builder = _Builder(escape_names=escape_names)
    variables: dict[str, Any] = dict(others)
    for name, schema in schemas.items():
        variables[name] = builder.variable(schema, f"{name}_type")
    try:
        Environment(variables, builder.pool()).compile(text)
    except CompileError as error:
        return _STRUCT.sub(r"undefined field '\1'", str(error))
    return ""


class _Builder:
    """Builds the message types of schemas in one file descriptor."""

    def __init__(self, *, escape_names: bool) -> None:
        self._escape_names = escape_names
        self._file = descriptor_pb2.FileDescriptorProto(
            name="schema.proto",
            package="schema",
            syntax="proto3",
            dependency=[
                "google/protobuf/struct.proto",
                "google/protobuf/timestamp.proto",
                "google/protobuf/duration.proto",
            ],
        )
        self._messages: dict[int, str] = {}
        self._kept: list[Schema] = []
        """Keeps the schemas alive by whose identity messages are known."""

    def pool(self) -> descriptor_pool.DescriptorPool:
        """All types, including those of the function library."""
        made = descriptor_pool.DescriptorPool()
        for module in (struct_pb2, timestamp_pb2, duration_pb2):
            made.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        for serialized in descriptor_files():
            made.AddSerializedFile(serialized)
        made.AddSerializedFile(self._file.SerializeToString())
        return made

    def variable(self, schema: Schema, hint: str) -> Any:
        """The type of a variable that holds a value of `schema`."""
        if _is_open(schema):
            return cel.Type.DYN
        if schema.type == "array" and schema.items is not None:
            return cel.Type.List(self.variable(schema.items, hint))
        if schema.type == "object" and not schema.properties:
            values = schema.additional_properties
            inner = self.variable(values, hint) if values is not None else cel.Type.DYN
            return cel.Type.Map(cel.Type.STRING, inner)
        if schema.type == "object":
            return cel.Type(self._message(schema, hint))
        if schema.type == "string" and schema.format in _FORMATS:
            return _FORMATS[schema.format][1]
        if schema.type == "string" and schema.format == "byte":
            return cel.Type.BYTES
        return _SCALARS[schema.type][1] if schema.type in _SCALARS else cel.Type.DYN

    def _message(self, schema: Schema, hint: str) -> str:
        """The full name of the message for an object with named fields."""
        known = self._messages.get(id(schema))
        if known is not None:
            return known
        short = f"{re.sub(r'[^A-Za-z0-9_]', '_', schema.definition or hint)}_{len(self._messages)}"
        full = self._messages[id(schema)] = f"schema.{short}"
        self._kept.append(schema)
        message = self._file.message_type.add(name=short)
        message.options.deprecated_legacy_json_field_conflicts = True
        for number, (name, child) in enumerate(schema.properties.items(), start=1):
            field_name = cel_name(name) if self._escape_names else name
            if _IDENTIFIER.match(field_name):
                self._field(message, field_name, number, child, f"{short}_{name}")
        return full

    def _field(
        self, message: descriptor_pb2.DescriptorProto, name: str, number: int, schema: Schema, hint: str
    ) -> None:
        made = message.field.add(name=name, number=number, json_name=name, label=_Field.LABEL_OPTIONAL)
        if schema.type == "array" and schema.items is not None and not _is_open(schema):
            made.label = _Field.LABEL_REPEATED
            schema = schema.items
        elif schema.type == "object" and not schema.properties and schema.additional_properties is not None:
            entry = _entry_name(name)
            if all(entry != nested.name for nested in message.nested_type):
                made.label = _Field.LABEL_REPEATED
                made.type = _Field.TYPE_MESSAGE
                made.type_name = self._map_entry(message, entry, schema.additional_properties, hint)
                return
        self._set_type(made, schema, hint)

    def _map_entry(
        self, message: descriptor_pb2.DescriptorProto, entry_name: str, values: Schema, hint: str
    ) -> str:
        """A map field is a list of nested messages with a key and a value."""
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        self._set_type(value, values, hint)
        return f".schema.{message.name}.{entry_name}"

    def _set_type(self, made: Any, schema: Schema, hint: str) -> None:
        """Set the type of a single value; what a message type cannot express is dynamic."""
        if not _is_open(schema):
            if schema.type == "object" and schema.properties:
                made.type, made.type_name = _Field.TYPE_MESSAGE, f".{self._message(schema, hint)}"
                return
            if schema.type == "string" and schema.format in _FORMATS:
                made.type, made.type_name = _Field.TYPE_MESSAGE, _FORMATS[schema.format][0]
                return
            if schema.type == "string" and schema.format == "byte":
                made.type = _Field.TYPE_BYTES
                return
            if schema.type in _SCALARS:
                made.type = _SCALARS[schema.type][0]
                return
        made.type, made.type_name = _Field.TYPE_MESSAGE, _ANYTHING


def _entry_name(field: str) -> str:
    """The name that protobuf prescribes for the nested message of a map field."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _is_open(schema: Schema) -> bool:
    """Whether the schema leaves the type of its values open."""
    return schema.int_or_string or schema.preserve_unknown or schema.nullable or not schema.type
