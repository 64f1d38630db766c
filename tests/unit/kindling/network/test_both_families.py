"""Names of services and pods with addresses of both families."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

import pytest

from kindling.network import dns
from kindling.network.resolver import Names

SERVICE6 = "fd6b::f0:0:0:7"
WEB = "web.n.svc.cluster.local"
PODS = {"a": ("10.64.1.2", "fd6b::1:2"), "b": ("10.64.1.3", "fd6b::1:3")}


def service(name: str, *addresses: str) -> dict[str, Any]:
    spec = {"clusterIP": addresses[0], "clusterIPs": list(addresses), "ports": [{"name": "http", "port": 80}]}
    return {"metadata": {"name": name, "namespace": "n"}, "spec": spec}


def of_family(name: str, index: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "labels": {"kubernetes.io/service-name": name}},
        "addressType": ("IPv4", "IPv6")[index],
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [
            {"addresses": [both[index]], "hostname": host, "conditions": {"ready": True}}
            for host, both in PODS.items()
        ],
    }


NAMES = Names.of(
    [service("web", "10.64.240.7", SERVICE6), service("old", "10.64.240.8"), service("db", "None")],
    [of_family("db", 0), of_family("db", 1)],
)


def answer(name: str, kind: int) -> tuple[int, list[str]]:
    raw = dns.encode_name(name) + struct.pack(">HH", kind, 1)
    found = NAMES.lookup(dns.parse_query(struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + raw))
    assert found is not None
    code, records = found
    dns.answer(dns.Question(7, True, name, kind, raw), code, records)
    return code, [record.value for record in records]


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        (WEB, dns.A, ["10.64.240.7"]),
        (WEB, dns.AAAA, [SERVICE6]),
        (WEB, dns.ANY, ["10.64.240.7", SERVICE6]),
        ("old.n.svc.cluster.local", dns.AAAA, []),
        ("db.n.svc.cluster.local", dns.A, ["10.64.1.2", "10.64.1.3"]),
        ("db.n.svc.cluster.local", dns.AAAA, ["fd6b::1:2", "fd6b::1:3"]),
        ("b.db.n.svc.cluster.local", dns.A, ["10.64.1.3"]),
        ("b.db.n.svc.cluster.local", dns.AAAA, ["fd6b::1:3"]),
        ("_http._tcp.db.n.svc.cluster.local", dns.SRV, [f"{host}.db.n.svc.cluster.local" for host in PODS]),
        ("10-64-1-2.n.pod.cluster.local", dns.A, ["10.64.1.2"]),
        ("10-64-1-2.n.pod.cluster.local", dns.AAAA, []),
        ("fd6b--1-2.n.pod.cluster.local", dns.AAAA, ["fd6b::1:2"]),
        ("fd6b-0-0-0-0-0-1-2.n.pod.cluster.local", dns.AAAA, ["fd6b::1:2"]),
    ],
)
def test_a_name_has_the_addresses_of_the_family_asked_for(name: str, kind: int, found: list[str]) -> None:
    """Without any, the name is still known: a client that was told otherwise would not ask for the others."""
    assert answer(name, kind) == (dns.NO_ERROR, found)


@pytest.mark.parametrize("name", ["10-64-1-999.n.pod.cluster.local", "fd6b-1-2.n.pod.cluster.local"])
def test_what_is_no_address_is_no_pod(name: str) -> None:
    assert answer(name, dns.AAAA) == (dns.NAME_ERROR, [])


def test_addresses_of_both_families_lead_back_to_the_service() -> None:
    for address in ("10.64.240.7", SERVICE6):
        assert answer(ipaddress.ip_address(address).reverse_pointer, dns.PTR) == (dns.NO_ERROR, [WEB])
    for name in (ipaddress.ip_address("2001:db8::1").reverse_pointer, "1.0.ip6.arpa", "ip6.arpa", "x.arpa"):
        assert NAMES.lookup(dns.Question(7, True, name, dns.PTR, b"")) is None
