"""Defaulting, and dropping nulls of fields that are not nullable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubecore.json import JsonObject, deep_copy

from .model import Schema

_Walker = Callable[[Any], None]
_Derived = Callable[[Schema], _Walker | None]
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_ABSENT = object()


def default(document: JsonObject, schema: Schema, *, keeps_nulls: bool = False) -> None:
    """Set the defaults that `schema` declares for absent (or wrongly null) fields of `document`, in place.

    Afterwards fields which are null though not nullable are gone, as if they had not been written. With
    `keeps_nulls`, those without a default stay, for validation to refuse.
    """
    walker = schema.derive(_keeping if keeps_nulls else _dropping)
    if walker is not None:
        walker(document)


def _dropping(schema: Schema) -> _Walker | None:
    return _walker(schema, _dropping)


def _keeping(schema: Schema) -> _Walker | None:
    return _walker(schema, _keeping)


def _walker(schema: Schema, derived: _Derived) -> _Walker | None:
    """The function for a schema node; None for nodes without children. `derived` makes the functions of its
    children.
    """
    if schema.type in _SCALARS or schema.int_or_string:
        return None
    walk_object = _object_walker(schema, derived)

    def walk(value: Any) -> None:
        if type(value) is dict:
            walk_object(value)
        elif type(value) is list:
            items = schema.items
            walk_item = items.derive(derived) if items is not None else None
            if walk_item is not None:
                for item in value:
                    walk_item(item)

    return walk


def _object_walker(schema: Schema, derived: _Derived) -> Callable[[JsonObject], None]:
    known: dict[str, tuple[bool, _Walker | None]] = {}
    defaults: list[tuple[str, Any, bool]] = [
        (name, child.default, child.nullable)
        for name, child in schema.properties.items()
        if child.has_default and child.default is not None
    ]

    def walk(value: JsonObject) -> None:
        for name, default_value, nullable in defaults:
            present = value.get(name, _ABSENT)
            if present is _ABSENT or (present is None and not nullable):
                value[name] = _copy(default_value)
        nulls: list[str] | None = None
        for key, child in value.items():
            if child is not None and type(child) is not dict and type(child) is not list:
                continue
            try:
                nullable, walker = known[key]
            except KeyError:
                child_schema = schema.child(key)
                if child_schema is None:
                    continue
                nullable, walker = child_schema.nullable, child_schema.derive(derived)
                if key in schema.properties:
                    known[key] = nullable, walker
            if child is None:
                if not nullable and derived is _dropping:
                    nulls = [*nulls, key] if nulls else [key]
            elif walker is not None:
                walker(child)
        if nulls:
            for key in nulls:
                del value[key]

    return walk


def _copy(value: Any) -> Any:
    return deep_copy({"": value})[""] if isinstance(value, (dict, list)) else value
