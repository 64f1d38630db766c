"""Whether a schema is structural: every field has a type that is specified outside of anyOf, oneOf, allOf
and not.

Only then can objects be pruned and defaulted, and merged field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required

from .defaulting import default as apply_defaults
from .definition import check_keywords, unsupported_keyword
from .embedded import validate_embedded
from .list_types import validate_list_types
from .model import Schema, SchemaSet
from .pruning import prune
from .regexes import Pattern, PatternError
from .validation import validate

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_LEVELS = {
    "root": "must not be empty at the root",
    "items": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_IN_NESTED = {
    **dict.fromkeys(("type", "title", "description"), "empty"),
    **dict.fromkeys(("x-kubernetes-list-map-keys", "x-kubernetes-validations"), "empty"),
    **dict.fromkeys(("default", "additionalProperties"), "undefined"),
    **dict.fromkeys(("x-kubernetes-list-type", "x-kubernetes-map-type"), "undefined"),
    **dict.fromkeys(("nullable", "x-kubernetes-preserve-unknown-fields"), "false"),
    **dict.fromkeys(("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"), "false"),
}
"""What branches of a schema must leave to the schema itself."""


def check_structural(raw: JsonObject, path: FieldPath) -> list[FieldError]:
    """Everything wrong with ``openAPIV3Schema``: its structure, its defaults, its keywords.

    Defaults are checked only when the schema is structural, because they are validated against it.
    """
    errors: list[FieldError] = []
    if raw.get("nullable"):
        errors.append(forbidden(path.child("nullable"), "nullable cannot be true at the root"))
    unsupported = unsupported_keyword(raw)
    if not unsupported:
        structure = [*_invariants(raw, "root", path), *_completeness(raw, path)]
        structure.sort(key=FieldError.message)
        errors += structure or _defaults(Schema(raw, SchemaSet(open_objects=False)), path, is_root=True)
    errors += check_keywords(raw, path)
    return errors or ([invalid(path, "", unsupported)] if unsupported else [])


def _invariants(raw: JsonObject, level: str, path: FieldPath) -> Iterator[FieldError]:
    if raw.get("type") == "array" and raw.get("items") is None:
        yield required(path.child("items"), "must be specified")
    if isinstance(raw.get("items"), dict):
        yield from _invariants(raw["items"], "items", path.child("items"))
    for name, child in (raw.get("properties") or {}).items():
        yield from _invariants(child, "field", path.child("properties").key(name))
    extra = raw.get("additionalProperties")
    if isinstance(extra, dict):
        yield from _invariants(extra, "field", path.child("additionalProperties"))
    if extra is not None and level == "root":
        yield forbidden(path.child("additionalProperties"), "must not be used at the root")
    yield from _extension_conflicts(raw, path)
    yield from _value_validation(raw, path, allow_int_or_string=True)
    yield from _types(raw, level, path)
    if level == "root" or raw.get("x-kubernetes-embedded-resource"):
        yield from _common_fields(raw, path)
    if (
        raw.get("x-kubernetes-embedded-resource")
        and not raw.get("x-kubernetes-preserve-unknown-fields")
        and not raw.get("properties")
    ):
        yield required(
            path.child("properties"),
            "must not be empty if x-kubernetes-embedded-resource is true "
            "without x-kubernetes-preserve-unknown-fields",
        )


def _extension_conflicts(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    if raw.get("x-kubernetes-int-or-string"):
        for other in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if raw.get(other):
                yield invalid(path.child(other), True, "must be false if x-kubernetes-int-or-string is true")


def _types(raw: JsonObject, level: str, path: FieldPath) -> Iterator[FieldError]:
    kind, embedded = raw.get("type") or "", raw.get("x-kubernetes-embedded-resource")
    type_path = path.child("type")
    if embedded and kind != "object":
        message = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(type_path, kind, message) if kind else required(type_path, message)
    elif (
        not kind
        and not raw.get("x-kubernetes-int-or-string")
        and not raw.get("x-kubernetes-preserve-unknown-fields")
    ):
        yield required(type_path, _LEVELS[level])
    if embedded and raw.get("additionalProperties") is not None:
        message = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden(path.child("additionalProperties"), message)
    if level == "root" and kind and kind != "object":
        yield invalid(type_path, kind, "must be object at the root")


def _common_fields(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """apiVersion, kind and metadata of an object may be restricted, not redefined."""
    properties = raw.get("properties") or {}
    for name in ("kind", "apiVersion"):
        if name in properties and properties[name].get("type") != "string":
            type_path = path.child("properties").key(name).child("type")
            yield invalid(type_path, properties[name].get("type") or "", "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    metadata_path = path.child("properties").key("metadata")
    if metadata.get("type") != "object":
        yield invalid(metadata_path.child("type"), metadata.get("type") or "", "must be object")
    harmless = {"type", "default", "properties", "description", "title"}
    others = set(metadata.get("properties") or ()) - {"name", "generateName"}
    if others or any(metadata.get(key) for key in metadata.keys() - harmless):
        yield forbidden(
            metadata_path,
            "must not specify anything other than name and generateName, "
            "but metadata is implicitly specified",
        )


def _value_validation(
    raw: JsonObject, path: FieldPath, *, allow_int_or_string: bool = False
) -> Iterator[FieldError]:
    """The logical keywords of a node: their branches may contain value validations only."""
    any_of, all_of = raw.get("anyOf") or [], raw.get("allOf") or []
    skip_any_of = allow_int_or_string and any_of == _INT_OR_STRING
    skip_first = allow_int_or_string and not skip_any_of and _first_any_of(all_of) == _INT_OR_STRING
    for index, branch in enumerate([] if skip_any_of else any_of):
        yield from _nested(branch, path.child("anyOf").index(index))
    for index, branch in enumerate(all_of):
        yield from _nested(branch, path.child("allOf").index(index), skip_any_of=skip_first and index == 0)
    for index, branch in enumerate(raw.get("oneOf") or []):
        yield from _nested(branch, path.child("oneOf").index(index))
    if isinstance(raw.get("not"), dict):
        yield from _nested(raw["not"], path.child("not"))
    pattern = raw.get("pattern")
    if pattern:
        try:
            Pattern(pattern)
        except PatternError as error:
            message = f"must be a valid regular expression, but isn't: {error}"
            yield invalid(path.child("pattern"), pattern, message)


def _first_any_of(all_of: list[Any]) -> Any:
    return all_of[0].get("anyOf") if all_of and isinstance(all_of[0], dict) else None


def _nested(raw: JsonObject, path: FieldPath, *, skip_any_of: bool = False) -> Iterator[FieldError]:
    yield from _value_validation(raw, path, allow_int_or_string=skip_any_of)
    if isinstance(raw.get("items"), dict):
        yield from _nested(raw["items"], path.child("items"))
    for name, child in (raw.get("properties") or {}).items():
        yield from _nested(child, path.child("properties").key(name))
    for key, wanted in _IN_NESTED.items():
        value = raw.get(key)
        # additionalProperties: false counts as absent here; only a schema or true count
        if value or (wanted == "undefined" and value is not None and key != "additionalProperties"):
            yield forbidden(path.child(key), f"must be {wanted} to be structural")
    if "metadata" in (raw.get("properties") or {}):
        yield forbidden(path.child("properties").key("metadata"), "must not be specified in a nested context")


def _completeness(raw: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Fields inside logical keywords of the root must be specified outside of them."""
    for keyword in ("anyOf", "allOf", "oneOf"):
        for index, branch in enumerate(raw.get(keyword) or []):
            yield from _specified(raw, branch, path, path.child(keyword).index(index))
    if isinstance(raw.get("not"), dict):
        yield from _specified(raw, raw["not"], path, path.child("not"))


def _specified(
    outer: Any, branch: JsonObject, path: FieldPath, branch_path: FieldPath
) -> Iterator[FieldError]:
    if isinstance(child := branch.get("items"), dict):
        known = outer.get("items")
        if isinstance(known, dict):
            yield from _specified(known, child, path.child("items"), branch_path.child("items"))
        else:
            yield required(path.child("items"), f"because it is defined in {branch_path.child('items')}")
    for name, child in (branch.get("properties") or {}).items():
        here, there = path.child("properties").key(name), branch_path.child("properties").key(name)
        if (known := (outer.get("properties") or {}).get(name)) is not None:
            yield from _specified(known, child, here, there)
        else:
            yield required(here, f"because it is defined in {there}")
    for keyword in ("anyOf", "allOf", "oneOf"):
        for index, inner in enumerate(branch.get(keyword) or []):
            yield from _specified(outer, inner, path, branch_path.child(keyword).index(index))
    if isinstance(branch.get("not"), dict):
        yield from _specified(outer, branch["not"], path, branch_path.child("not"))


def _defaults(schema: Schema, path: FieldPath, *, is_root: bool = False) -> Iterator[FieldError]:
    """Declared defaults must be valid and must survive pruning."""
    if schema.has_default and schema.default is not None:
        yield from _default_errors(schema, path.child("default"), is_root=is_root)
    for name, child in schema.properties.items():
        if schema.embedded_resource and name not in (schema.raw.get("properties") or {}):
            continue
        yield from _defaults(child, path.child("properties").key(name))
    if schema.items is not None:
        yield from _defaults(schema.items, path.child("items"))
    if isinstance(schema.raw.get("additionalProperties"), dict) and schema.additional_properties:
        yield from _defaults(schema.additional_properties, path.child("additionalProperties"))


def _default_errors(schema: Schema, path: FieldPath, *, is_root: bool) -> list[FieldError]:
    value = deep_copy({"value": schema.default})
    raw = {**schema.raw, "x-kubernetes-embedded-resource": True} if is_root else schema.raw
    whole = Schema({"type": "object", "properties": {"value": raw}}, SchemaSet(open_objects=False))
    apply_defaults(value, whole)
    errors = [invalid(path, schema.default, "must not have unknown fields")] if prune(value, whole) else []
    errors += validate(value.get("value"), schema, path)
    for error in validate_embedded(value, whole):
        errors.append(replace(error, field=f"{path}{error.field.removeprefix('value')}"))
    errors += validate_list_types(value.get("value"), schema, path)
    return errors
