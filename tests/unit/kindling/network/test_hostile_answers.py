"""What other DNS servers answer: their messages are bounded, whatever they say."""

from __future__ import annotations

import struct

import pytest

from kindling.network import dns
from kindling.network.resolver import Names, Resolver

HEADER = struct.pack(">HHHHHH", 7, 0x8180, 0, 1, 0, 0)
TARGET = "evil.n.svc.cluster.local"
NAMES = Names(aliases={TARGET: "example.com"})


def record(owner: bytes, kind: int, data: bytes) -> bytes:
    return HEADER + owner + struct.pack(">HHIH", kind, 1, 5, len(data)) + data


def pointer(to: int) -> bytes:
    return struct.pack(">H", 0xC000 | to)


@pytest.mark.parametrize(
    "owner",
    [
        pointer(12),
        b"\x03abc" + pointer(12),
        b"\x01a" + pointer(17) + b"\x01b" + pointer(12),
        b"\x3f" + b"a" * 63 + pointer(12),
    ],
)
def test_a_name_that_leads_to_itself_has_an_end(owner: bytes) -> None:
    with pytest.raises(dns.MalformedMessage, match="does not point backwards"):
        dns.parse_response(record(owner, dns.A, bytes(4)))


def test_a_name_that_leads_to_an_earlier_one_is_read() -> None:
    first = b"\x03www\x07example\x03com\x00"
    answers = record(first, dns.CNAME, b"\x03cdn" + pointer(16))
    assert [item.value for item in dns.parse_response(answers)] == ["cdn.example.com"]


def test_a_name_that_is_thousands_of_pointers_is_none() -> None:
    begin = len(record(b"\x00", 16, b""))
    chain = b"\x00" + b"".join(pointer(begin + max(0, 2 * number - 1)) for number in range(4000))
    end = pointer(begin + len(chain) - 2)
    head = struct.pack(">HHHHHH", 7, 0x8180, 0, 2, 0, 0)
    first = record(b"\x00", 16, chain)[len(HEADER) :]
    second = record(end, dns.A, bytes(4))[len(HEADER) :]
    with pytest.raises(dns.MalformedMessage, match="too many compression pointers"):
        dns.parse_response(head + first + second)


def test_a_name_longer_than_names_are_is_none() -> None:
    with pytest.raises(dns.MalformedMessage, match="too long"):
        dns.parse_response(record((b"\x3f" + b"a" * 63) * 4 + b"\x00", dns.A, bytes(4)))
    longest = b"\x3f" + b"a" * 63
    fits = dns.parse_response(record(longest * 3 + b"\x3d" + b"a" * 61 + b"\x00", dns.A, bytes(4)))
    assert len(fits[0].owner) == 253


@pytest.mark.parametrize(("kind", "size"), [(dns.A, 16), (dns.AAAA, 4), (dns.A, 0)])
def test_an_address_of_the_other_family_is_malformed(kind: int, size: int) -> None:
    with pytest.raises(dns.MalformedMessage):
        dns.parse_response(record(b"\x00", kind, bytes(size)))


@pytest.mark.parametrize(
    "answer",
    [record(b"\x03abc" + pointer(12), dns.A, bytes(4)), record(b"\x00", dns.A, bytes(16)), b"", HEADER],
)
async def test_an_alias_is_told_without_a_malformed_answer_for_it(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(_message: bytes, *, by_datagram: bool) -> bytes:
        assert not by_datagram
        return answer

    made = Resolver("127.0.0.1", ["192.0.2.53"])
    made.names = NAMES
    monkeypatch.setattr(made, "_ask_servers", asked)
    response = await made.respond(dns.query(7, TARGET, dns.A))
    assert response is not None
    assert [item.value for item in dns.parse_response(response)] == ["example.com"]


async def test_an_answer_by_tcp_has_an_end_as_well() -> None:
    """A headless service may have more endpoints than a message has room for."""
    addresses = tuple(f"10.1.{number // 250}.{number % 250}" for number in range(5000))
    made = Resolver("127.0.0.1", [])
    made.names = Names(addresses={TARGET: addresses})
    response = await made.respond(dns.query(7, TARGET, dns.A))
    assert response is not None
    assert 65535 - 16 < len(response) <= 65535
    assert dns.is_truncated(response)


async def test_a_question_longer_than_names_are_is_not_answered() -> None:
    made = Resolver("127.0.0.1", [])
    question = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + (b"\x3f" + b"a" * 63) * 900 + b"\x00\0\1\0\1"
    assert await made.respond(question) is None


def test_names_above_names_exist_and_others_do_not() -> None:
    made = Names(addresses={"web.n.svc.cluster.local": ("10.0.0.7",)})

    def code(name: str) -> int:
        found = made.lookup(dns.parse_query(dns.query(1, name, dns.A)))
        assert found is not None
        return found[0]

    for name in ("n.svc.cluster.local", "svc.cluster.local", "cluster.local"):
        assert code(name) == dns.NO_ERROR
    for name in ("m.svc.cluster.local", "eb.n.svc.cluster.local", "a.web.n.svc.cluster.local"):
        assert code(name) == dns.NAME_ERROR
