"""Structural schemas from the structs: the only source of the custom resource definitions."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubecore.json import JsonObject, deep_copy
from virtplane.api.markers import (
    PRESENCE,
    QUANTITY_PATTERN,
    REQUEST_ENUM,
    REQUEST_FORMAT,
    REQUEST_METADATA,
    REQUIRED_MEMBER,
    UNSIGNED,
    ApiStruct,
)

RANGE = "x-virtplane-range"
"""Lowest and highest number that KubeVirt's own type holds."""
WRITTEN = "x-virtplane-written"
"""Members that KubeVirt's own types always write."""
QUANTITY = "x-virtplane-quantity"
"""Whether the value is an amount."""

_SCALARS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass(frozen=True)
class Read:
    """The schemas of structs that were read before, for kinds that have structs in common.

    Reading all kinds with the same takes a fourth of the time: most hold the template of an instance.
    """

    describe: bool = True
    """Whether they have descriptions."""
    schemas: dict[type[ApiStruct], JsonObject] = field(default_factory=dict)


def object_schema(struct: type[ApiStruct], read: Read | None = None) -> JsonObject:
    """The structural schema of a root kind, as a definition's ``openAPIV3Schema`` holds it."""
    return _served(_struct_schema(struct, read or Read()))


def request_schema(struct: type[ApiStruct]) -> JsonObject:
    """The schema that virt-api's webhooks read requests by, without descriptions (see `_requested`)."""
    return _requested(_struct_schema(struct, Read(describe=False)))


def _struct_schema(struct: type[ApiStruct], read: Read) -> JsonObject:
    """The schema of a struct; its caller may change it, not what it holds."""
    if struct not in read.schemas:
        read.schemas[struct] = _read_struct(struct, read)
    return dict(read.schemas[struct])


def _read_struct(struct: type[ApiStruct], read: Read) -> JsonObject:
    hints = typing.get_type_hints(struct, include_extras=True)
    properties: JsonObject = {}
    required: list[str] = []
    for declared in msgspec.structs.fields(struct):
        member = _schema(hints[declared.name], read)
        properties[declared.encode_name] = member
        if member.pop(REQUIRED_MEMBER, False) or declared.required:
            required.append(declared.encode_name)
    schema: JsonObject = {"type": "object", **struct.schema_marks}
    if read.describe:
        schema["description"] = " ".join((struct.__doc__ or "").split())
    if properties:
        schema["properties"] = {name: properties[name] for name in sorted(properties)}
    if required:
        schema["required"] = sorted(required)
    return schema


def _schema(hint: Any, read: Read) -> JsonObject:
    """The schema of one annotation: marks on the outside win over what the type itself says.

    So a description of a field stands in place of its struct's.
    """
    metadata: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *extras = typing.get_args(hint)
        metadata = tuple(extras)
    inner, inner_metadata = _without_none(hint)
    schema = _bare_schema(inner, read)
    for meta in (*inner_metadata, *metadata):
        schema |= deep_copy(meta.extra_json_schema or {})
        if meta.description and read.describe:
            schema["description"] = meta.description
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    return schema


def _without_none(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The annotation without ``| None`` and without its own `Annotated`, and the marks found on the way."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        if len(rest) == 1:
            hint = rest[0]
    if typing.get_origin(hint) is typing.Annotated:
        inner, *metadata = typing.get_args(hint)
        deeper, deeper_metadata = _without_none(inner)
        return deeper, (*deeper_metadata, *metadata)
    return hint, ()


def _bare_schema(hint: Any, read: Read) -> JsonObject:
    if isinstance(hint, type) and issubclass(hint, ApiStruct):
        return _struct_schema(hint, read) if hint.schema_has_members else {"type": "object"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list):
        return {"type": "array", "items": _schema(arguments[0], read)}
    if origin in (Mapping, dict):
        if arguments[1] is Any:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": _schema(arguments[1], read)}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    return {}


def _served(schema: JsonObject) -> JsonObject:
    """Remove members that only the webhooks use."""
    return {
        key: _walk(key, value, _served) for key, value in schema.items() if not key.startswith("x-virtplane-")
    }


def _requested(schema: JsonObject) -> JsonObject:
    """What KubeVirt's own types say: their enumerations and formats, which members they write, and ranges.

    A member that is required for the definition only has an empty value for them, which webhooks take.
    """
    if REQUEST_METADATA in schema:
        return _requested({"nullable": True, **_METADATA})
    found = {key: _walk(key, value, _requested) for key, value in schema.items() if key not in _SERVED_ONLY}
    found[QUANTITY] = schema.get("pattern") == QUANTITY_PATTERN
    if REQUEST_ENUM in schema:
        found["enum"] = schema[REQUEST_ENUM]
    if schema.get("type") == "integer":
        found[RANGE] = _integer_range(schema)
        found["format"] = schema.get(REQUEST_FORMAT, schema.get("format", ""))
    if "required" in schema or "properties" in schema:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        written = [name for name, member in properties.items() if member.get(PRESENCE) == "written"]
        found[WRITTEN] = [*required, *written]
        found["required"] = [name for name in required if not _has_empty_value(properties[name])]
    return found


_TEXT: JsonObject = {"type": "string"}
_TEXTS: JsonObject = {"type": "object", "additionalProperties": _TEXT}
_NUMBER: JsonObject = {"type": "integer", "format": "int64"}
_OWNER: JsonObject = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
        "blockOwnerDeletion": {"type": "boolean"},
        "controller": {"type": "boolean"},
    },
    "required": ["apiVersion", "kind", "name", "uid"],
}
_METADATA: JsonObject = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("generateName", "name", "namespace", "resourceVersion", "selfLink", "uid"), _TEXT),
        **dict.fromkeys(("annotations", "labels"), _TEXTS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TEXT),
        "deletionGracePeriodSeconds": _NUMBER,
        "finalizers": {"type": "array", "items": _TEXT},
        "generation": {**_NUMBER, PRESENCE: "dropped"},
        "managedFields": {"type": "array", "items": {"type": "object"}},
        "ownerReferences": {"type": "array", "items": _OWNER},
    },
}
"""Metadata of objects to create, as KubeVirt's own types have it."""
_SERVED_ONLY = ("enum", "pattern", "default", "minimum", "maximum", "required")


def _integer_range(schema: JsonObject) -> tuple[int, int]:
    bits = schema.get(UNSIGNED)
    if bits:
        return 0, 2**bits - 1
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None and low == 0 and high == 2**32 - 1:
        return low, high
    size = 31 if schema.get("format") == "int32" and REQUEST_FORMAT not in schema else 63
    return -(2**size), 2**size - 1


def _has_empty_value(schema: JsonObject) -> bool:
    """Whether KubeVirt's own type is a text, a number or a truth value, and no amount or port."""
    is_scalar = schema.get("type") in ("string", "integer", "number", "boolean")
    return is_scalar and not schema.get("x-kubernetes-int-or-string")


def _walk(key: str, value: Any, convert: typing.Callable[[JsonObject], JsonObject]) -> Any:
    if key == "properties":
        return {name: convert(schema) for name, schema in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return convert(value)
    return value
