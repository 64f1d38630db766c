"""Admission warnings about fields, or values of fields, that have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject
from virtplane.api.fields.state import Field, State, Table

_SUFFIX = "accepted, but has no effect yet"


def unsupported_warnings(table: Table, spec: JsonObject, *, instance: bool = False) -> list[str]:
    """One warning for each field of `spec` that has no effect, each naming its path in the document.

    `instance`: the document is an instance, into which admission itself has filled some fields.
    """
    return list(_warnings_below(table, spec, "spec", instance))


def _warnings_below(table: Table, value: JsonObject, shown: str, instance: bool) -> Iterator[str]:
    for path, inner, member in _walk(value, "", shown):
        field = table.get(path)
        if field is None or (instance and field.defaulted):
            continue
        yield from _warnings_of(field, inner, member)
        if field.inside and isinstance(member, list):
            for index, item in enumerate(member):
                if isinstance(item, dict):
                    yield from _warnings_below(field.inside, item, f"{inner}[{index}]", instance)


def _warnings_of(field: Field, shown: str, value: Any) -> Iterator[str]:
    if field.state is State.WARNS and _is_set(value):
        yield f"{shown}: {field.warning or _SUFFIX}"
    elif field.keys and isinstance(value, dict):
        yield from (f"{shown}.{key}: {_SUFFIX}" for key in value if key not in field.keys)
    else:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and _is_ineffective(field, text):
                yield f"{shown}: the value {text} is {_SUFFIX}"


def _is_ineffective(field: Field, value: str) -> bool:
    return value in field.ineffective or bool(field.values and value not in field.values)


def _is_set(value: Any) -> bool:
    """Whether the value is set. An empty object is: it switches a feature on."""
    return value not in (None, False, "", []) or value == {}


def _walk(value: JsonObject, path: str, shown: str) -> Iterator[tuple[str, str, Any]]:
    """Every member at every depth: its path in the table, as users see it, and its value."""
    for name, member in value.items():
        inner, seen = f"{path}.{name}" if path else name, f"{shown}.{name}"
        yield inner, seen, member
        if isinstance(member, dict):
            yield from _walk(member, inner, seen)
        elif isinstance(member, list):
            for index, item in enumerate(member):
                if isinstance(item, dict):
                    yield from _walk(item, f"{inner}[]", f"{seen}[{index}]")
