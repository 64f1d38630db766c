"""Names of ExternalName services, as a pod's resolver sees them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from kindling.network import dns
from kindling.network.resolver import Names, Resolver, _Once


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name}, "spec": spec}


def external(name: str, target: str) -> dict[str, Any]:
    return service(name, type="ExternalName", externalName=target)


NAMES = Names.of(
    [
        service("web", clusterIP="10.0.0.7"),
        external("inside", "web.n.svc.cluster.local"),
        external("twice", "Inside.n.svc.cluster.local."),
        external("outside", "example.com"),
        external("circle", "circle.n.svc.cluster.local"),
    ],
    [],
)


def question(name: str, kind: int) -> bytes:
    return dns.query(7, name, kind)


def lookup(name: str, kind: int) -> tuple[int, list[tuple[int, str, str]]]:
    found = NAMES.lookup(dns.parse_query(question(name, kind)))
    assert found is not None
    return found[0], [(record.kind, record.owner, record.value) for record in found[1]]


def test_an_alias_is_followed_to_the_address_within_the_cluster() -> None:
    inside, web = "inside.n.svc.cluster.local", "web.n.svc.cluster.local"
    assert lookup(inside, dns.A) == (dns.NO_ERROR, [(dns.CNAME, inside, web), (dns.A, web, "10.0.0.7")])
    code, records = lookup("twice.n.svc.cluster.local", dns.A)
    assert (code, [kind for kind, _, _ in records]) == (dns.NO_ERROR, [dns.CNAME, dns.CNAME, dns.A])
    assert records[-1] == (dns.A, web, "10.0.0.7")


@pytest.mark.parametrize("kind", [dns.A, dns.AAAA, dns.CNAME])
def test_an_alias_of_a_name_elsewhere_is_told(kind: int) -> None:
    name = "outside.n.svc.cluster.local"
    assert lookup(name, kind) == (dns.NO_ERROR, [(dns.CNAME, name, "example.com")])


def test_a_question_for_the_alias_alone_is_not_followed() -> None:
    assert [kind for kind, _, _ in lookup("twice.n.svc.cluster.local", dns.CNAME)[1]] == [dns.CNAME]


def test_a_service_that_is_its_own_alias_ends_somewhere() -> None:
    code, records = lookup("circle.n.svc.cluster.local", dns.A)
    assert code == dns.NO_ERROR
    assert {kind for kind, _, _ in records} == {dns.CNAME}
    assert len(records) < 20


def test_an_alias_without_records_of_the_kind_exists_all_the_same() -> None:
    assert lookup("outside.n.svc.cluster.local", dns.SRV) == (dns.NO_ERROR, [])
    assert lookup("absent.n.svc.cluster.local", dns.A) == (dns.NAME_ERROR, [])


def test_what_came_over_the_wire_names_alias_and_address() -> None:
    response = asyncio.run(Resolver("127.0.0.1", []).respond(question("inside.n.svc.cluster.local", dns.A)))
    assert response is not None  # nothing is known before the names are set
    resolver = Resolver("127.0.0.1", [])
    resolver.names = NAMES
    response = asyncio.run(resolver.respond(question("inside.n.svc.cluster.local", dns.A)))
    assert response is not None
    assert [(record.kind, record.value) for record in dns.parse_response(response)] == [
        (dns.CNAME, "web.n.svc.cluster.local"),
        (dns.A, "10.0.0.7"),
    ]


def test_a_target_that_no_message_can_hold_is_a_failure_of_this_name_only() -> None:
    resolver = Resolver("127.0.0.1", [])
    resolver.names = Names.of([external("long", f"{'x' * 64}.com"), service("web", clusterIP="10.0.0.7")], [])
    for name, code in (("long", dns.SERVER_FAILURE), ("web", dns.NO_ERROR)):
        response = asyncio.run(resolver.respond(question(f"{name}.n.svc.cluster.local", dns.CNAME)))
        assert response is not None
        assert response[3] & 0xF == code


async def test_an_answer_to_another_question_is_passed_over() -> None:
    asked = _Once(question("example.com", dns.A))
    asked.datagram_received(b"\0\x08 of somebody else", ("192.0.2.53", 53))
    asked.datagram_received(b"\0\x07 the answer", ("192.0.2.53", 53))
    assert await asked.response == b"\0\x07 the answer"


def upstream_answer(asked: bytes) -> bytes:
    """The answer of another server, its names compressed: an alias of its own and an address."""
    found = dns.parse_query(asked)
    alias = b"\xc0\x0c" + struct.pack(">HHIH", dns.CNAME, 1, 60, 7) + b"\x04edge\xc0\x0c"
    owner = struct.pack(">H", 0xC000 | (12 + len(found.raw) + 12))
    address = owner + struct.pack(">HHIH", dns.A, 1, 60, 4) + bytes([192, 0, 2, 1])
    return struct.pack(">HHHHHH", found.identifier, 0x8180, 1, 2, 0, 0) + found.raw + alias + address


async def ask_with_upstream(monkeypatch: pytest.MonkeyPatch, reply: bytes | None) -> list[dns.Record]:
    asked: list[bytes] = []
    resolver = Resolver("127.0.0.1", ["192.0.2.53"])
    resolver.names = NAMES

    async def forward(message: bytes, _client: str) -> bytes | None:
        asked.append(message)
        return upstream_answer(message) if reply is None else reply

    monkeypatch.setattr(resolver, "_forward", forward)
    response = await resolver.respond(question("outside.n.svc.cluster.local", dns.A))
    assert response is not None
    assert [dns.parse_query(message).name for message in asked] == ["example.com"]
    return dns.parse_response(response)


def test_a_name_elsewhere_is_asked_for_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    records = asyncio.run(ask_with_upstream(monkeypatch, None))
    assert [(record.kind, record.owner, record.value) for record in records] == [
        (dns.CNAME, "outside.n.svc.cluster.local", "example.com"),
        (dns.CNAME, "example.com", "edge.example.com"),
        (dns.A, "edge.example.com", "192.0.2.1"),
    ]


@pytest.mark.parametrize("broken", [b"", b"\0" * 11, upstream_answer(question("example.com", dns.A))[:-2]])
def test_the_alias_stands_when_other_servers_answer_nonsense(
    monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    records = asyncio.run(ask_with_upstream(monkeypatch, broken))
    assert [record.kind for record in records] == [dns.CNAME]
