"""Maximum sizes of values by their schema, the input of CEL cost estimation. The numbers are those with
which Kubernetes accepts or rejects the rules of a CustomResourceDefinition.
"""

from __future__ import annotations

from typing import Final

from kubecore.schema.model import Schema

MAX_REQUEST_BYTES: Final = 3 * 1024 * 1024
UNKNOWN: Final = 2**64 - 1
"""The size of what nothing is known about; sums and products go no higher."""

_BYTES_PER_CHARACTER: Final = 4
_MAX_FORMAT_BYTES: Final = {"duration": 32, "date": 12, "date-time": 37}
_MIN_FORMAT_BYTES: Final = {"duration": 4, "date": 12, "date-time": 22}
_MIN_BYTES: Final = {"integer": 1, "number": 1, "boolean": 4, "string": 2, "array": 2}
_QUOTES: Final = 2


def max_size(schema: Schema) -> int:
    """The maximum number of characters, elements or entries of a value; 1 for scalars."""
    raw = schema.raw
    if schema.int_or_string or schema.type == "string":
        return _max_string(schema)
    if schema.type == "array":
        if raw.get("maxItems") is not None:
            return max(0, int(raw["maxItems"]))
        smallest = schema.items.derive(min_bytes) if schema.items is not None else 1
        return (MAX_REQUEST_BYTES - _QUOTES) // (smallest + 1)
    if schema.type == "object" and schema.additional_properties is not None:
        if raw.get("maxProperties") is not None:
            return max(0, int(raw["maxProperties"]))
        return (MAX_REQUEST_BYTES - _QUOTES) // (schema.additional_properties.derive(min_bytes) + 6)
    return 1


def _max_string(schema: Schema) -> int:
    raw = schema.raw
    longest = raw.get("maxLength")
    if schema.format in _MAX_FORMAT_BYTES and not schema.int_or_string:
        return _MAX_FORMAT_BYTES[schema.format]
    if longest is not None:
        return max(0, int(longest)) * (1 if schema.format == "byte" else _BYTES_PER_CHARACTER)
    allowed = raw.get("enum")
    if allowed and not schema.int_or_string:
        return max((len(value.encode()) for value in allowed if isinstance(value, str)), default=0)
    return MAX_REQUEST_BYTES - _QUOTES


def min_bytes(schema: Schema) -> int:
    """The minimum number of bytes of a value's JSON."""
    if schema.int_or_string:
        return 1
    if schema.type == "string" and schema.format in _MIN_FORMAT_BYTES:
        return _MIN_FORMAT_BYTES[schema.format]
    if schema.type != "object":
        return _MIN_BYTES.get(schema.type, 1)
    total = 2
    for name in schema.raw.get("required") or ():
        child = schema.properties.get(name)
        if child is not None and "default" not in child.raw:
            total += len(name) + child.derive(min_bytes) + 4
    return total
