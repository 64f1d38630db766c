"""The DHCPv6 server of a launcher."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtplane.compute.launcher import dhcp6

ADDRESS = "fd10:0:2::2"
CLIENT = bytes.fromhex("00030001020102030405")
SERVER = bytes.fromhex("00030001020000000000")
SOLICIT, ADVERTISE, REQUEST, CONFIRM, RENEW, REBIND, REPLY, RELEASE, DECLINE, RECONFIGURE, ASKING = range(
    1, 12
)


def option(code: int, value: bytes) -> bytes:
    return struct.pack("!HH", code, len(value)) + value


def association(identifier: bytes = b"\0\0\0\7") -> bytes:
    return option(3, identifier + bytes(8))


def message(kind: int, *options: bytes, server: bytes = b"") -> bytes:
    said = option(1, CLIENT) + (option(2, server) if server else b"")
    return bytes([kind]) + b"xid" + said + b"".join(options)


def read(data: bytes) -> list[tuple[int, bytes]]:
    found, position = [], 0
    while position < len(data):
        code, size = struct.unpack_from("!HH", data, position)
        found.append((code, data[position + 4 : position + 4 + size]))
        position += 4 + size
    return found


def answered(request: bytes) -> tuple[int, list[tuple[int, bytes]]]:
    reply = dhcp6.answer(request, ADDRESS)
    assert reply is not None
    assert reply[1:4] == b"xid"
    options = read(reply[4:])
    assert options[:2] == [(1, CLIENT), (2, SERVER)]
    return reply[0], options[2:]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (message(SOLICIT, association()), ADVERTISE),
        (message(REQUEST, association(), server=SERVER), REPLY),
        (message(RENEW, association(), server=SERVER), REPLY),
        (message(REBIND, association()), REPLY),
    ],
)
def test_the_guest_gets_its_address(request_: bytes, kind: int) -> None:
    said, ((code, value),) = answered(request_)
    assert (said, code, value[:4]) == (kind, 3, b"\0\0\0\7")
    renew, rebind = struct.unpack_from("!II", value, 4)
    ((inner, given_),) = read(value[12:])
    assert (inner, given_[:16]) == (5, socket.inet_pton(socket.AF_INET6, ADDRESS))
    preferred, valid = struct.unpack_from("!II", given_, 16)
    assert renew < rebind < preferred == valid == 999 * 24 * 3600


def test_two_messages_are_enough_where_the_client_wants_that() -> None:
    kind, options = answered(message(SOLICIT, association(), option(14, b"")))
    assert (kind, [code for code, _ in options]) == (REPLY, [14, 3])


def test_a_second_association_gets_no_address() -> None:
    _, options = answered(message(SOLICIT, association(), association(b"\0\0\0\x08")))
    assert options[1][1][12:] == option(13, b"\0\2")


@pytest.mark.parametrize("kind", [RELEASE, DECLINE, CONFIRM])
def test_what_takes_nothing_is_confirmed(kind: int) -> None:
    server = b"" if kind == CONFIRM else SERVER
    assert answered(message(kind, association(), server=server)) == (REPLY, [(13, b"\0\0")])


def test_who_only_asks_gets_no_address() -> None:
    assert answered(message(ASKING)) == (REPLY, [])


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\1xi",
        message(REQUEST, association(), server=b"other"),
        message(REQUEST, association()),
        message(SOLICIT, association(), server=SERVER),
        message(SOLICIT) + b"\0\3\0\x20short",
        b"\1xid" + association(),
        b"\1xid" + option(1, b"x" * 131) + association(),
        message(RECONFIGURE, server=SERVER),
        message(ADVERTISE, server=SERVER),
    ],
)
def test_what_is_not_for_it_is_ignored(request_: bytes) -> None:
    assert dhcp6.answer(request_, ADDRESS) is None


@given(st.binary(max_size=600) | st.binary(max_size=300).map(lambda tail: message(SOLICIT) + tail))
def test_no_datagram_is_too_much(data: bytes) -> None:
    reply = dhcp6.answer(data, ADDRESS)
    assert reply is None or len(reply) < 10 * len(data) + 200
