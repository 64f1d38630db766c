"""Objects as some refusals quote them: in the API server's internal form, every field under its Go name."""

from __future__ import annotations

from typing import Any


class Inline(dict[str, Any]):
    """The shape of an object that is part of another: its fields are there even where it is absent."""


def internal_form(value: Any, shape: Any) -> Any:
    """`value` with the Go names, order and zero values of `shape`; lists take the shape of its element.

    A field whose shape is None is a pointer, list or map of scalars: null where absent.
    """
    if isinstance(shape, dict):
        if value is None:
            if not isinstance(shape, Inline):
                return None
            value = {}
        found = {key.lower(): item for key, item in value.items()}
        return {key: internal_form(found.get(key.lower()), part) for key, part in shape.items()}
    if isinstance(shape, list):
        return None if value is None else [internal_form(item, shape[0]) for item in value]
    return shape if value is None else value
