"""Dropping fields which a schema does not know.

A schema is turned into closures once, a table per object node, filled as fields are met: unknown fields
cost a lookup, and recursive definitions need no special care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubecore.json import JsonObject

from .model import Schema

_Walker = Callable[[Any], "list[str] | None"]
"""Prunes a value in place; the relative paths of what was dropped, or None."""

_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def prune(document: JsonObject, schema: Schema) -> list[str]:
    """Drop the fields of `document` that `schema` does not name, in place.

    Returns their paths sorted, as field validation reports them (``spec.list[0].gone``). Below an unknown
    field nothing more is reported. Objects lose all members where a scalar belongs; other values of the wrong
    type are left for validation to find.
    """
    walker = schema.derive(_walker)
    return sorted(walker(document) or ()) if walker else []


def _walker(schema: Schema) -> _Walker | None:
    """The function for a schema node; None if nothing can be pruned below it."""
    if _is_open(schema):
        return None
    if schema.type in _SCALARS or schema.int_or_string:
        return _drop_everything
    return _container_walker(schema)


def _is_open(schema: Schema) -> bool:
    return schema.preserve_unknown and not schema.properties and schema.additional_properties is None


def _container_walker(schema: Schema) -> _Walker:
    """Objects and lists share a closure: a node without a type may be either."""
    walk_object = _object_walker(schema)
    walk_list = _list_walker(schema)

    def walk(value: Any) -> list[str] | None:
        if type(value) is dict:
            return walk_object(value)
        return walk_list(value) if type(value) is list else None

    return walk


def _object_walker(schema: Schema) -> Callable[[JsonObject], list[str] | None]:
    known: dict[str, _Walker | None] = {}
    keeps_unknown = schema.preserve_unknown

    def walk(value: JsonObject) -> list[str] | None:
        dropped: list[str] | None = None
        unknown: list[str] | None = None
        for key, child in value.items():
            try:
                walker = known[key]
            except KeyError:
                child_schema = schema.child(key)
                if child_schema is None:
                    if not keeps_unknown:
                        unknown = unknown or []
                        unknown.append(key)
                    continue
                walker = child_schema.derive(_walker)
                if key in schema.properties:
                    known[key] = walker
            if walker is not None and (below := walker(child)):
                dropped = dropped or []
                dropped += [_join(key, path) for path in below]
        if unknown:
            for key in unknown:
                del value[key]
            return [*unknown, *(dropped or ())]
        return dropped

    return walk


def _list_walker(schema: Schema) -> Callable[[list[Any]], list[str] | None]:
    def walk(value: list[Any]) -> list[str] | None:
        items = schema.items
        walker = items.derive(_walker) if items is not None else _drop_everything
        if walker is None:
            return None
        dropped: list[str] | None = None
        for index, child in enumerate(value):
            if below := walker(child):
                dropped = dropped or []
                dropped += [_join(f"[{index}]", path) for path in below]
        return dropped

    return walk


def _drop_everything(value: Any) -> list[str] | None:
    """Without known properties, all members of an object are pruned."""
    if type(value) is not dict:
        return None
    keys = list(value)
    value.clear()
    return keys


def _join(head: str, tail: str) -> str:
    return head + tail if tail.startswith("[") else f"{head}.{tail}"
