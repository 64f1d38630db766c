"""Unchanged values of an update. Validation that became stricter does not apply to them (ratcheting), so that
a user who changes one field need not correct the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from .model import Schema

_NOT_COMPARED = ("apiVersion", "kind")
"""Of a whole object: both documents have been brought to one version."""


def equal_json(left: Any, right: Any) -> bool:
    """Equality of JSON values: unlike in Python, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal_json, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal_json(left[key], right[key]) for key in left)
    return bool(left == right)


def unchanged_names(new: Any, old: Any, schema: Schema) -> frozenset[str]:
    """The names (``spec.list[0].x``) of the topmost values that `old` has as well."""
    return frozenset(_unchanged(new, old, schema, ""))


def _unchanged(new: Any, old: Any, schema: Schema, name: str) -> Iterator[str]:
    if is_unchanged(new, old, schema):
        yield name
    elif isinstance(new, dict) and isinstance(old, dict):
        for key, value in new.items():
            child = schema.child(key)
            if child is not None and key in old and (name or key not in _NOT_COMPARED):
                yield from _unchanged(value, old[key], child, f"{name}.{key}" if name else key)
    elif isinstance(new, list) and schema.items is not None:
        before = elements_by_key(old, schema)
        for index, item in enumerate(new):
            if (was := before.get(map_key(item, schema) or b"")) is not None:
                yield from _unchanged(item, was, schema.items, f"{name}[{index}]")


def is_unchanged(new: Any, old: Any, schema: Schema) -> bool:
    """Whether a value is unchanged. A field unknown to the schema never is; the order of a map list does not
    count.
    """
    if isinstance(new, dict) and isinstance(old, dict):
        return len(new) == len(old) and all(
            key in old and (child := schema.child(key)) is not None and is_unchanged(value, old[key], child)
            for key, value in new.items()
        )
    if isinstance(new, list) and isinstance(old, list) and schema.list_type == "map":
        before, items = elements_by_key(old, schema), schema.items
        return len(new) == len(old) and all(
            items is not None
            and (was := before.get(map_key(item, schema) or b"")) is not None
            and is_unchanged(item, was, items)
            for item in new
        )
    return type(new) is type(old) and equal_json(new, old)


def map_key(item: Any, schema: Schema) -> bytes | None:
    """What identifies an element of a map list across updates; other lists cannot be correlated."""
    if schema.list_type != "map" or not isinstance(item, dict):
        return None
    return orjson.dumps([item.get(name) for name in schema.list_map_keys])


def elements_by_key(items: Any, schema: Schema) -> dict[bytes, Any]:
    """The elements of a map list by what identifies them."""
    found: dict[bytes, Any] = {}
    for item in items if isinstance(items, list) else ():
        if (key := map_key(item, schema)) is not None:
            found[key] = item
    return found
