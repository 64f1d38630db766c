"""The single-lease DHCP server, by its datagrams."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtplane.compute.launcher import dhcp

MAC = bytes.fromhex("020102030405")
LEASE: dict[str, Any] = {
    "mac": "02:01:02:03:04:05",
    "address": "10.0.2.2",
    "prefix": 24,
    "server": "10.0.2.1",
    "routers": ["10.0.2.1"],
    "dns": ["10.96.0.10"],
    "search": ["ns.svc.cluster.local", "svc.cluster.local"],
    "mtu": 1450,
    "hostname": "vm",
    "private": {"240": "hello"},
}


def request(kind: int, mac: bytes = MAC, wanted: bytes = b"") -> bytes:
    header = struct.pack(
        "!BBBBIHH4s4s4s4s16s64s128s", 1, 1, 6, 0, 7, 0, 0x8000, b"", b"", b"", b"", mac, b"", b""
    )
    options = bytes([53, 1, kind]) + (bytes([50, 4]) + wanted if wanted else b"")
    return header + b"\x63\x82\x53\x63" + options + b"\xff"


def options_of(reply: bytes) -> dict[int, bytes]:
    found, position = {}, 240
    while reply[position] != 255:
        code, length = reply[position], reply[position + 1]
        found[code] = reply[position + 2 : position + 2 + length]
        position += 2 + length
    return found


@pytest.mark.feature("NET-02", "NET-08")
def test_discover_is_offered_the_lease_with_resolver_and_mtu() -> None:
    reply = dhcp.answer(request(1), LEASE)
    assert reply is not None
    found = options_of(reply)
    assert reply[16:20] == bytes([10, 0, 2, 2])
    assert found[53] == b"\x02"
    assert found[1] == bytes([255, 255, 255, 0])
    assert found[6] == bytes([10, 96, 0, 10])
    assert struct.unpack("!H", found[26]) == (1450,)
    assert found[121] == bytes([0, 10, 0, 2, 1])
    assert found[15] == b"ns.svc.cluster.local"
    assert found[240] == b"hello"


def test_request_for_the_lease_is_acknowledged() -> None:
    reply = dhcp.answer(request(3, wanted=bytes([10, 0, 2, 2])), LEASE)
    assert reply is not None
    assert options_of(reply)[53] == b"\x05"


def test_request_for_another_address_is_refused_without_an_address() -> None:
    reply = dhcp.answer(request(3, wanted=bytes([10, 0, 2, 9])), LEASE)
    assert reply is not None
    assert options_of(reply)[53] == b"\x06"
    assert reply[16:20] == bytes(4)


def test_strangers_get_no_answer() -> None:
    assert dhcp.answer(request(1, mac=bytes(6)), LEASE) is None


HEAD = request(1)[:240]


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x01" * 100,
        request(1)[:-8],
        b"\x02" + request(1)[1:],
        HEAD,
        HEAD + b"\xff",
        HEAD + b"\x35",
        HEAD + b"\x35\x00\xff",
        HEAD + b"\x35\x02\x01\x01\xff",
        HEAD + b"\x35\x01\x01\x35\x01\x01\xff",
        HEAD + b"\x35\x01\x03\x32\x03\x0a\x00\x02\xff",
        HEAD + b"\x35\x01\x01\x0c\xff\x00",
        HEAD[:1] + b"\x06\x06" + request(1)[3:],
        HEAD[:1] + b"\x01\x10" + request(1)[3:],
        HEAD + b"\x35\x01\x03\x36\x04\x0a\x00\x02\x63\xff",
    ],
)
def test_malformed_datagrams_get_no_answer(junk: bytes) -> None:
    assert dhcp.answer(junk, LEASE) is None


def test_release_gets_no_answer() -> None:
    assert dhcp.answer(request(7), LEASE) is None


def test_routes_are_told_with_no_more_than_their_significant_bytes() -> None:
    routes = [["169.254.1.1/32", "0.0.0.0"], ["172.16.0.0/12", "169.254.1.1"], ["0.0.0.0/0", "169.254.1.1"]]
    reply = dhcp.answer(request(1), LEASE | {"routes": routes})
    assert reply is not None
    assert options_of(reply)[121] == bytes(
        [32, 169, 254, 1, 1, 0, 0, 0, 0, 12, 172, 16, 169, 254, 1, 1, 0, 169, 254, 1, 1]
    )


def test_more_routes_than_one_option_holds_are_continued_in_another() -> None:
    routes = [[f"10.0.{number}.0/24", "10.0.2.1"] for number in range(40)]
    reply = dhcp.answer(request(1), LEASE | {"routes": routes})
    assert reply is not None
    assert bytes([121, 255, 24, 10, 0, 0]) in reply
    assert bytes([121, 40 * 8 - 255]) in reply


def test_without_routes_there_is_no_option_for_them() -> None:
    reply = dhcp.answer(request(1), LEASE | {"routers": [], "routes": []})
    assert reply is not None
    assert not {3, 121} & set(options_of(reply))


def mutated(changes: list[tuple[int, int]], cut: int, tail: bytes) -> bytes:
    """A good request with bytes replaced, its end cut off and another put there."""
    packet = bytearray(request(3, wanted=bytes([10, 0, 2, 2])))
    for position, value in changes:
        packet[position % len(packet)] = value
    return bytes(packet[: len(packet) - cut] + tail)


changed = st.builds(
    mutated,
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=6),
    st.integers(0, 20),
    st.binary(max_size=64),
)
options_alone = st.binary(max_size=300).map(lambda options: HEAD + options)


@given(st.binary(max_size=2048) | changed | options_alone)
def test_no_datagram_ends_the_server_or_changes_the_lease(packet: bytes) -> None:
    lease = {**LEASE, "routers": list(LEASE["routers"])}
    reply = dhcp.answer(packet, lease)
    assert lease == LEASE
    if reply is None:
        return
    assert packet[:3] == b"\x01\x01\x06"
    assert packet[28:34] == MAC
    found = options_of(reply)
    assert found[54] == bytes([10, 0, 2, 1])
    assert reply[16:20] == (bytes(4) if found[53] == b"\x06" else bytes([10, 0, 2, 2]))
    assert reply[4:8] == packet[4:8]
