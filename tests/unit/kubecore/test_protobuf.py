"""Reading protobuf messages without their classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.protobuf import Malformed, fields_of, read_varint, varint


@given(st.integers(0, (1 << 64) - 1))
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    encoded = varint(number)
    assert read_varint(b"\xff" + encoded + b"\x01", 1) == (number, 1 + len(encoded))


def test_fields_of_every_wire_type_come_in_order() -> None:
    wide = bytes(range(8))
    data = b"\x08\x96\x01\x12\x02hi\x1d\x01\x02\x03\x04\x21" + wide + b"\x08\x00"
    assert list(fields_of(data)) == [(1, 150), (2, b"hi"), (3, bytes([1, 2, 3, 4])), (4, wide), (1, 0)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01", "a field has no number"),
        (b"\x0b", "field 1 has the unknown wire type 3"),
        (b"\x12\x05hi", "field 2 ends early"),
        (b"\x1d\x01", "field 3 ends early"),
        (b"\x08\xff", "a number ends early"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number ends early"),
        (b"\x12\xff\xff\xff\xff\x0f", "field 2 ends early"),
    ],
)
def test_what_is_no_message_is_malformed(data: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        list(fields_of(data))
