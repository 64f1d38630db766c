"""Protobuf messages without generated classes: reading a message's fields by number, and varints both ways.

For messages whose meaning comes from somewhere else (an OpenAPI schema, a compiler's output). Services that
have an interface table use ``kubecore.wire`` instead.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types."""

Value = int | bytes
"""A varint (unsigned), or the bytes of a length-delimited or fixed-width value."""


class Malformed(ValueError):
    """The bytes are no protobuf message."""


def fields_of(data: bytes) -> Iterator[tuple[int, Value]]:
    """Numbers and values of a message's fields, in order. Raises Malformed."""
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise Malformed("a field has no number")
        value: Value
        if wire_type == VARINT:
            value, position = read_varint(data, position)
        else:
            if wire_type == BYTES:
                size, position = read_varint(data, position)
            elif wire_type in (FIXED64, FIXED32):
                size = 8 if wire_type == FIXED64 else 4
            else:
                raise Malformed(f"field {number} has the unknown wire type {wire_type}")
            end = position + size
            if end > len(data):
                raise Malformed(f"field {number} ends early")
            value, position = data[position:end], end
        yield number, value


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a varint; returns the number and the position after it. Raises Malformed."""
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise Malformed("a number ends early")


def varint(value: int) -> bytes:
    """An unsigned number as it is encoded."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
