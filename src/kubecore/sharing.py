"""JSON documents whose equal parts are one object in memory; pure."""

from __future__ import annotations

from typing import cast

from kubecore.json import JsonObject

_Parts = dict[object, object]


def with_shared_parts(document: JsonObject) -> JsonObject:
    """An equal document in which equal parts are the same object; it must not be changed.

    Definitions of custom resources repeat themselves: a version's schema is nearly that of the other, and
    some parts stand in it several times. They take a quarter of the memory so.
    """
    return cast(JsonObject, _shared(document, {}))


def _shared(value: object, parts: _Parts) -> object:
    """`value`, or the part of `parts` that equals it. Members are shared first: identity compares them."""
    if isinstance(value, str):
        return parts.setdefault(value, value)
    if isinstance(value, dict):
        made = {_shared(key, parts): _shared(member, parts) for key, member in value.items()}
        return parts.setdefault((dict, *map(id, made), *map(_identity, made.values())), made)
    if isinstance(value, list):
        items = [_shared(item, parts) for item in value]
        return parts.setdefault((list, *map(_identity, items)), items)
    return value


def _identity(value: object) -> object:
    """What only equal values of the same type have in common."""
    return id(value) if isinstance(value, dict | list | str) else (type(value), value)
