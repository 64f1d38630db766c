"""Numbers of a strategic merge patch, as Go puts them into the structs of a built-in kind.

Such a patch is merged as a document and then turned into a struct by conversions, not by the decoder of JSON:
a whole number takes any integer field, and one that is too large keeps the bits that fit.
"""

from __future__ import annotations

from typing import Any

from kubecore.schema.model import Schema

_BITS = {"int32": 32}
_INT64 = 1 << 63


def restore_numbers(value: Any, schema: Schema | None) -> Any:
    """`value` with the numbers of integer fields converted; objects and lists are changed in place."""
    if schema is None:
        return value
    if isinstance(value, dict):
        for key, child in value.items():
            value[key] = restore_numbers(child, schema.child(key))
        return value
    if isinstance(value, list):
        value[:] = [restore_numbers(item, schema.items) for item in value]
        return value
    if schema.type != "integer" or schema.int_or_string or isinstance(value, bool):
        return value
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return _wrapped(int(value), _BITS.get(schema.format, 64))
    return value


def _wrapped(number: int, bits: int) -> int:
    if not -_INT64 <= number < _INT64:
        # It is a float by then, and on amd64 one without an integer of its own becomes the smallest.
        number = -_INT64
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half
