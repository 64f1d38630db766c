"""Structural schemas made of the structs: the only way from a type to a custom resource definition."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from kubecore.json import JsonObject, deep_copy
from virtplane.api.markers import REQUEST_ENUM, REQUIRED_MEMBER, ApiStruct

_SCALARS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def object_schema(struct: type[ApiStruct]) -> JsonObject:
    """The structural schema of a root kind, as a definition's ``openAPIV3Schema`` holds it."""
    return _served(_struct_schema(struct, describe=True))


def request_schema(struct: type[ApiStruct]) -> JsonObject:
    """The schema that virt-api's webhooks check requests by: no descriptions, stricter enumerations."""
    return _requested(_struct_schema(struct, describe=False))


def _struct_schema(struct: type[ApiStruct], *, describe: bool) -> JsonObject:
    hints = typing.get_type_hints(struct, include_extras=True)
    properties: JsonObject = {}
    required: list[str] = []
    for declared in msgspec.structs.fields(struct):
        member = _schema(hints[declared.name], describe=describe)
        properties[declared.encode_name] = member
        if member.pop(REQUIRED_MEMBER, False) or declared.required:
            required.append(declared.encode_name)
    schema: JsonObject = {"type": "object", **struct.schema_marks}
    if describe:
        schema["description"] = " ".join((struct.__doc__ or "").split())
    if properties:
        schema["properties"] = {name: properties[name] for name in sorted(properties)}
    if required:
        schema["required"] = sorted(required)
    return schema


def _schema(hint: Any, *, describe: bool) -> JsonObject:
    """The schema of one annotation: marks on the outside win over what the type itself says."""
    metadata: tuple[Any, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *extras = typing.get_args(hint)
        metadata = tuple(extras)
    inner, inner_metadata = _without_none(hint)
    schema = _bare_schema(inner, describe=describe)
    for meta in (*inner_metadata, *metadata):
        schema |= deep_copy(meta.extra_json_schema or {})
        if meta.description and describe:
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


def _bare_schema(hint: Any, *, describe: bool) -> JsonObject:
    if isinstance(hint, type) and issubclass(hint, ApiStruct):
        return _struct_schema(hint, describe=describe) if hint.schema_has_members else {"type": "object"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list):
        return {"type": "array", "items": _schema(arguments[0], describe=describe)}
    if origin in (Mapping, dict):
        if arguments[1] is Any:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": _schema(arguments[1], describe=describe)}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    return {}


def _served(schema: JsonObject) -> JsonObject:
    """Drop what only the webhooks know of."""
    return {key: _walk(key, value, _served) for key, value in schema.items() if key != REQUEST_ENUM}


def _requested(schema: JsonObject) -> JsonObject:
    """Turn what only the webhooks know of into plain keywords."""
    named = {("enum" if key == REQUEST_ENUM else key): value for key, value in schema.items()}
    return {key: _walk(key, value, _requested) for key, value in named.items()}


def _walk(key: str, value: Any, convert: typing.Callable[[JsonObject], JsonObject]) -> Any:
    if key == "properties":
        return {name: convert(schema) for name, schema in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return convert(value)
    return value
