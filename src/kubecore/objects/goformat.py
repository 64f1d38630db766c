"""Decoded JSON as Go prints it with ``%v``, which some API messages quote."""

from __future__ import annotations

from typing import Any

from kubecore.objects.fields import format_float


def go_print(value: Any) -> str:
    """``map[a:1 b:[x y]]``: keys sorted, no quotes, ``<nil>`` for null."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_print(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(go_print(item) for item in value)}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_float(value) if isinstance(value, float) else str(value)


def json_type(value: Any) -> str:
    """The name that Go's JSON decoder gives to the type of a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        return "array"
    return "null" if value is None else "object"
