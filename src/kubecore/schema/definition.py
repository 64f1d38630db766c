"""Validation of the keywords in ``openAPIV3Schema`` of a CustomResourceDefinition, node by node. The rules
of *structural* schemas are in ``structural``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_NOT_EVEN_EMPTY = ("additionalItems", "$ref")


def check_keywords(raw: JsonObject, path: FieldPath) -> list[FieldError]:
    """Errors of the keywords in a schema and everything below it."""
    return list(_node(raw, path, is_root=True))


def unsupported_keyword(raw: Any) -> str:
    """What keeps a schema from being structural at all: keywords that Kubernetes lacks. Empty if nothing."""
    if not isinstance(raw, dict):
        return ""
    for keyword in ("id", "$schema", *_UNSUPPORTED[1:]):
        if raw.get(keyword) or (keyword == "additionalItems" and raw.get(keyword) is not None):
            shown = "schema" if keyword == "$schema" else keyword
            return f"OpenAPIV3Schema '{shown}' is not supported"
    if isinstance(raw.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    children = [raw.get("items"), raw.get("not"), raw.get("additionalProperties")]
    children += [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in raw.get(keyword) or ()]
    children += (raw.get("properties") or {}).values()
    return next((problem for child in children if (problem := unsupported_keyword(child))), "")


def _node(
    raw: JsonObject,
    path: FieldPath,
    *,
    is_root: bool = False,
    in_metadata: bool = False,
    without_default: str = "",
) -> Iterator[FieldError]:
    """The errors of one schema node. `without_default` is the reason why it may not have a default."""
    kind = raw.get("type")
    if kind and kind not in _TYPES:
        yield not_supported(path.child("type"), kind, _TYPES)
    if without_default and raw.get("default") is not None:
        yield forbidden(path.child("default"), f"must not be set {without_default}")
    yield from _forbidden_keywords(raw, path, in_metadata=in_metadata)
    yield from _object_keywords(raw, path)
    yield from _children(raw, path, is_root=is_root, in_metadata=in_metadata, without_default=without_default)
    yield from _extensions(raw, path)
    yield from _list_keywords(raw, path)


def _forbidden_keywords(raw: JsonObject, path: FieldPath, *, in_metadata: bool) -> Iterator[FieldError]:
    for keyword in _UNSUPPORTED:
        if raw.get(keyword) or (keyword in _NOT_EVEN_EMPTY and raw.get(keyword) is not None):
            yield forbidden(path.child(keyword), f"{keyword} is not supported")
    if raw.get("type") == "null":
        message = "type cannot be set to null, use nullable as an alternative"
        yield forbidden(path.child("type"), message)
    items = raw.get("items")
    if isinstance(items, list):
        yield forbidden(path.child("items"), "items must be a schema object and not an array")
    if in_metadata and raw.get("x-kubernetes-embedded-resource"):
        yield forbidden(
            path.child("x-kubernetes-embedded-resource"), "must not be used inside of resource meta"
        )
    if raw.get("uniqueItems"):
        message = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(path.child("uniqueItems"), message)


def _object_keywords(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    extra = raw.get("additionalProperties")
    if extra is False and raw.get("properties"):
        yield forbidden(path.child("additionalProperties"), "additionalProperties cannot be set to false")
    if extra is not None and extra is not True and raw.get("properties"):
        message = "additionalProperties and properties are mutual exclusive"
        yield forbidden(path.child("additionalProperties"), message)


def _children(
    raw: JsonObject, path: FieldPath, *, is_root: bool, in_metadata: bool, without_default: str
) -> Iterator[FieldError]:
    has_metadata = is_root or bool(raw.get("x-kubernetes-embedded-resource"))
    extra = raw.get("additionalProperties")
    if isinstance(extra, dict):
        where = "inside additionalProperties applying to object metadata" if in_metadata else without_default
        here = path.child("additionalProperties")
        yield from _node(extra, here, in_metadata=in_metadata, without_default=where)
    for name, child in (raw.get("properties") or {}).items():
        common = has_metadata and name in ("metadata", "kind", "apiVersion")
        where = f"in top-level {name}" if common and is_root else without_default
        here = path.child("properties").key(name)
        yield from _node(child, here, in_metadata=in_metadata or common, without_default=where)
    branches = [("not", raw["not"])] if isinstance(raw.get("not"), dict) else []
    for keyword in ("allOf", "oneOf", "anyOf"):
        branches += [(f"{keyword}[{index}]", each) for index, each in enumerate(raw.get(keyword) or ())]
    if isinstance(raw.get("items"), dict):
        branches.append(("items", raw["items"]))
    for name, child in branches:
        yield from _node(child, path.child(name), in_metadata=in_metadata, without_default=without_default)


def _extensions(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    preserve = "x-kubernetes-preserve-unknown-fields"
    if raw.get(preserve) is False:
        yield invalid(path.child(preserve), False, "must be true or undefined")
    map_type = raw.get("x-kubernetes-map-type")
    if map_type is not None:
        yield from _wants_type(raw, path, "object", "x-kubernetes-map-type")
        if map_type not in {"atomic", "granular"}:
            yield not_supported(path.child("x-kubernetes-map-type"), map_type, ("atomic", "granular"))


def _wants_type(raw: JsonObject, path: FieldPath, wanted: str, because: str) -> Iterator[FieldError]:
    kind = raw.get("type")
    message = f"must be {wanted} if {because} is specified"
    if not kind:
        yield required(path.child("type"), message)
    elif kind != wanted:
        yield invalid(path.child("type"), kind, message)


def _list_keywords(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    list_type, keys = raw.get("x-kubernetes-list-type"), raw.get("x-kubernetes-list-map-keys") or []
    type_path = path.child("x-kubernetes-list-type")
    items = raw.get("items")
    if list_type is not None:
        yield from _wants_type(raw, path, "array", "x-kubernetes-list-type")
        if list_type == "set" and raw.get("type") == "array" and isinstance(items, dict):
            yield from _set_items(items, path.child("items"))
        if list_type not in {"atomic", "set", "map"}:
            yield not_supported(type_path, list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        message = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield required(type_path, message) if list_type is None else invalid(type_path, list_type, message)
    if list_type == "map":
        yield from _map_list(raw, keys, items, path)
    elif list_type == "set" and isinstance(items, dict) and items.get("nullable"):
        message = "cannot be nullable when x-kubernetes-list-type is set"
        yield forbidden(path.child("items", "nullable"), message)


def _map_list(raw: JsonObject, keys: list[str], items: Any, path: FieldPath) -> Iterator[FieldError]:
    keys_path, items_path = path.child("x-kubernetes-list-map-keys"), path.child("items")
    if not keys:
        yield required(keys_path, "must not be empty if x-kubernetes-list-type is map")
    if not isinstance(items, dict):
        yield required(items_path, "must have a schema if x-kubernetes-list-type is map")
        return
    properties = items.get("properties") or {}
    if items.get("type") != "object":
        message = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(items_path.child("type"), items.get("type") or "", message)
    else:
        for index, key in enumerate(keys):
            if key not in properties:
                yield invalid(keys_path, keys, "entries must all be names of item properties")
            elif properties[key].get("type") in {"array", "object"}:
                message = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                yield invalid(items_path.child("properties").key(key).child("type"), "object", message)
            if key in keys[:index]:
                yield invalid(keys_path, keys, "must not contain duplicate entries")
    if items.get("nullable"):
        yield forbidden(items_path.child("nullable"), "cannot be nullable when x-kubernetes-list-type is map")
    for key in keys:
        if key in properties:
            yield from _map_key(properties[key], key, items, items_path.child("properties").key(key))


def _map_key(field: JsonObject, key: str, items: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    because = "this property is in x-kubernetes-list-map-keys, so it"
    if field.get("default") is None and key not in (items.get("required") or ()):
        yield required(path.child("default"), f"{because} must have a default or be a required property")
    if field.get("nullable"):
        yield forbidden(path.child("nullable"), f"{because} cannot be nullable")


def _set_items(items: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Elements of sets are compared as a whole, so they must be atomic."""
    kind = items.get("type")
    if kind == "object" and items.get("x-kubernetes-map-type") != "atomic":
        message = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid(path.child("x-kubernetes-map-type"), items.get("x-kubernetes-list-type"), message)
    elif kind == "array" and items.get("x-kubernetes-list-type") not in {None, "atomic"}:
        message = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid(path.child("x-kubernetes-list-type"), items["x-kubernetes-list-type"], message)
