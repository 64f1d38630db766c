"""Services as nftables rules and as names."""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import Any

import orjson
import pytest

from kindling.network import dns, resolver, rules, services

SERVICE: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "ns"},
    "spec": {
        "clusterIP": "10.64.240.9",
        "clusterIPs": ["10.64.240.9"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}],
    },
}
SLICE: dict[str, Any] = {
    "metadata": {"name": "web-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    "endpoints": [
        {"addresses": ["10.64.1.2"], "conditions": {"ready": True}},
        {"addresses": ["10.64.1.3"], "conditions": {"ready": False, "serving": True, "terminating": True}},
        {"addresses": ["10.64.1.4"], "hostname": "h", "conditions": {"ready": True}},
    ],
}
PLACE = rules.Place("10.64.0.11", "10.64.0.0/16")


def ask(name: str, kind: int = dns.A) -> dns.Question:
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + dns.encode_name(name) + struct.pack(">HH", kind, 1)
    return dns.parse_query(query)


def test_only_ready_endpoints_are_used() -> None:
    (port,) = services.service_ports([SERVICE], [SLICE])
    assert [item.address for item in port.backends] == ["10.64.1.2", "10.64.1.4"]
    assert (port.node_port, port.protocol) == (30080, "tcp")


def test_ending_endpoints_serve_when_there_is_no_other() -> None:
    ending = {**SLICE, "endpoints": [SLICE["endpoints"][1]]}
    (port,) = services.service_ports([SERVICE], [ending])
    assert [item.address for item in port.backends] == ["10.64.1.3"]


def test_headless_services_have_no_rules() -> None:
    headless = {**SERVICE, "spec": {**SERVICE["spec"], "clusterIP": "None"}}
    assert services.service_ports([headless], [SLICE]) == []


def test_host_ports_come_from_running_pods() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    pod = {
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIP": "10.64.1.2"},
    }
    assert services.host_ports([pod]) == [
        services.HostPort("n", "tcp", 8080, services.Backend("10.64.1.2", 80))
    ]


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
@pytest.mark.host
def test_the_kernel_accepts_the_rules() -> None:
    backends = (services.Backend("10.64.1.2", 80), services.Backend("10.64.1.3", 80))
    ports = [
        services.ServicePort("a", "tcp", ("10.64.240.9",), 80, 30080, backends, sticky=True),
        services.ServicePort("b", "udp", ("10.64.240.9",), 53, 0, backends, sticky=False),
        services.ServicePort("c", "tcp", ("10.64.240.10",), 1, 0, (), sticky=False),
    ]
    hosts = [services.HostPort("n", "tcp", 8080, backends[0])]
    document = rules.ruleset("t", rules.Place("10.64.0.11", "10.64.0.0/16", "10.64.1.0/24"), ports, hosts)
    for extra in (["--check"], []):
        done = subprocess.run(
            ["unshare", "--net", "nft", *extra, "-j", "-f", "-"],
            input=orjson.dumps(document),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


def test_an_empty_cluster_still_makes_a_table() -> None:
    commands = rules.ruleset("t", PLACE, [])["nftables"]
    assert commands[0] == {"add": {"table": {"family": "ip", "name": "t"}}}
    assert not any("vmap" in str(command) for command in commands)


def test_ports_without_backends_are_refused() -> None:
    port = services.ServicePort("c", "tcp", ("10.64.240.10",), 1, 0, (), sticky=False)
    document = rules.ruleset("t", PLACE, [port])
    assert any("reject" in str(command) for command in document["nftables"])


def test_services_and_named_endpoints_have_names() -> None:
    headless = {
        "metadata": {"name": "db", "namespace": "ns"},
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]},
    }
    of_db = {**SLICE, "metadata": {**SLICE["metadata"], "labels": {"kubernetes.io/service-name": "db"}}}
    names = resolver.Names.of([SERVICE, headless], [SLICE, of_db])

    def values(name: str, kind: int = dns.A) -> list[str]:
        found = names.lookup(ask(name, kind))
        assert found is not None
        return [record.value for record in found[1]]

    assert values("web.ns.svc.cluster.local") == ["10.64.240.9"]
    assert values("db.ns.svc.cluster.local") == ["10.64.1.2", "10.64.1.4"]
    assert values("h.db.ns.svc.cluster.local") == ["10.64.1.4"]
    assert values("10-64-1-2.ns.pod.cluster.local") == ["10.64.1.2"]
    assert values("9.240.64.10.in-addr.arpa", dns.PTR) == ["web.ns.svc.cluster.local"]
    assert values("_http._tcp.web.ns.svc.cluster.local", dns.SRV) == ["web.ns.svc.cluster.local"]


def test_unknown_names_of_the_cluster_do_not_exist_and_others_are_asked_elsewhere() -> None:
    names = resolver.Names.of([SERVICE], [SLICE])
    assert names.lookup(ask("none.ns.svc.cluster.local")) == (dns.NAME_ERROR, [])
    assert names.lookup(ask("web.ns.svc.cluster.local", dns.AAAA)) == (dns.NO_ERROR, [])
    assert names.lookup(ask("example.com")) is None


def test_answers_repeat_the_question() -> None:
    question = ask("a.b")
    message = dns.answer(question, dns.NO_ERROR, [dns.Record(dns.A, "1.2.3.4")])
    assert struct.unpack_from(">HHHHHH", message) == (7, 0x8580, 1, 1, 0, 0)
    assert message.endswith(b"\x00\x04\x01\x02\x03\x04")
    with pytest.raises(dns.MalformedMessage):
        dns.parse_query(b"\0" * 5)
