"""Uniqueness in lists of type ``set`` and ``map``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from kubecore.objects.fields import FieldError, FieldPath, duplicate

from .model import Schema


def validate_list_types(document: Any, schema: Schema, path: FieldPath | None = None) -> list[FieldError]:
    """Elements of sets that occur twice, and elements of map lists whose keys do."""
    if not schema.derive(_has_list_types):
        return []
    return list(_walk(document, schema, path or FieldPath()))


def _has_list_types(schema: Schema) -> bool:
    """Whether `schema` contains lists of type ``set`` or ``map`` (schemas of custom resources do not
    recurse).
    """
    if schema.list_type in {"set", "map"}:
        return True
    children = [*schema.properties.values(), schema.items, schema.additional_properties]
    return any(child.derive(_has_list_types) for child in children if child is not None)


def _walk(value: Any, schema: Schema, path: FieldPath) -> Iterator[FieldError]:
    if isinstance(value, dict):
        for key, child in value.items():
            child_schema = schema.properties.get(key)
            if child_schema is not None:
                yield from _walk(child, child_schema, path.child(key))
            elif schema.additional_properties is not None:
                yield from _walk(child, schema.additional_properties, path.key(key))
    elif isinstance(value, list):
        if schema.list_type == "set":
            yield from _duplicates(value, value, path)
        elif schema.list_type == "map":
            yield from _duplicates(value, [_key(item, schema) for item in value], path)
        if schema.items is not None:
            for index, item in enumerate(value):
                yield from _walk(item, schema.items, path.index(index))


def _key(item: Any, schema: Schema) -> Any:
    """The values of an element's key fields; a default stands for an absent one."""
    if not isinstance(item, dict) or schema.items is None:
        return item
    key = {}
    for name in schema.list_map_keys:
        field = schema.items.properties.get(name)
        if name in item:
            key[name] = item[name]
        elif field is not None and field.has_default:
            key[name] = field.default
    return key


def _duplicates(items: list[Any], keys: list[Any], path: FieldPath) -> Iterator[FieldError]:
    seen: set[bytes] = set()
    for index, key in enumerate(keys):
        encoded = orjson.dumps(key, option=orjson.OPT_SORT_KEYS)
        if encoded in seen:
            yield duplicate(path.index(index), key)
        seen.add(encoded)
