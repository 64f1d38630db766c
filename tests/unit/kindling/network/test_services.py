"""Services as nftables rules and as names."""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import Any

import pytest

from kindling.network import dns, resolver, rules, services, tables
from kindling.network.external import ExternalRanges

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
PLACE = rules.Place("10.64.0.0/16")
NOWHERE = ExternalRanges()
RANGES = ExternalRanges.of(["192.0.2.0/24", "10.0.0.0/8"], own=["10.64.0.0/16"])


def ask(name: str, kind: int = dns.A) -> dns.Question:
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + dns.encode_name(name) + struct.pack(">HH", kind, 1)
    return dns.parse_query(query)


def test_only_ready_endpoints_are_used() -> None:
    (port,) = services.service_ports([SERVICE], [SLICE], NOWHERE)
    assert [item.address for item in port.backends] == ["10.64.1.2", "10.64.1.4"]
    assert (port.node_port, port.protocol) == (30080, "tcp")


def test_ending_endpoints_serve_when_there_is_no_other() -> None:
    ending = {**SLICE, "endpoints": [SLICE["endpoints"][1]]}
    (port,) = services.service_ports([SERVICE], [ending], NOWHERE)
    assert [item.address for item in port.backends] == ["10.64.1.3"]


def test_headless_services_have_no_rules() -> None:
    headless = {**SERVICE, "spec": {**SERVICE["spec"], "clusterIP": "None"}}
    assert services.service_ports([headless], [SLICE], NOWHERE) == []


@pytest.mark.parametrize("label", ["service-proxy-name", "headless"])
def test_services_of_other_proxies_have_neither_rules_nor_health_checks(label: str) -> None:
    balanced = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
    ours = {**SERVICE, "spec": {**SERVICE["spec"], **balanced}}
    metadata = {**SERVICE["metadata"], "labels": {f"service.kubernetes.io/{label}": ""}}
    theirs = {**ours, "metadata": metadata}
    ports = services.ServicePorts(NOWHERE)
    assert len(ports.of([ours], [SLICE])) == len(services.health_checks([ours], [SLICE])) == 1
    assert not ports.of([theirs], [SLICE])
    assert not services.health_checks([theirs], [SLICE])
    assert len(ports.of([ours], [SLICE])) == 1, "the label may go again"


@pytest.mark.parametrize("address", ["", "fd00::2", "127.0.0.1", "nonsense"])
def test_host_ports_lead_to_addresses_of_pods_alone(address: str) -> None:
    container = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    status = {"phase": "Running", "podIP": address}
    assert (
        services.host_ports([{"spec": {"nodeName": "n", "containers": [container]}, "status": status}]) == []
    )


def test_host_ports_come_from_running_pods() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    pod = {
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIP": "10.64.1.2"},
    }
    assert services.host_ports([pod]) == [
        services.HostPort("n", "tcp", 8080, services.Backend("10.64.1.2", 80))
    ]


@pytest.mark.parametrize(("bound", "address"), [("10.64.0.11", "10.64.0.11"), ("0.0.0.0", ""), ("", "")])
def test_host_ports_keep_the_address_to_which_they_are_bound(bound: str, address: str) -> None:
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": bound}]
    pod = {
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIP": "10.64.1.2"},
    }
    assert [item.address for item in services.host_ports([pod])] == [address]


def keys_of_verdicts(table: tables.Table) -> list[list[str]]:
    maps = [table.collections[name] for name in ("cluster", "bound", "everywhere", "outside")]
    return [key.split(" . ") for found in maps for key in found.elements]


def loaded(table: tables.Table) -> str:
    return tables.replacement(tables.Existing(), table)


def claiming(name: str, created: str, *addresses: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {**SERVICE["spec"], "externalIPs": list(addresses)}}


def test_external_addresses_count_in_allowed_ranges_only() -> None:
    service = claiming("web", "", "192.0.2.1", "198.51.100.1", "10.64.240.1", "10.64.0.1", "10.1.0.1", "::1")
    service["status"] = {
        "loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"ip": "10.64.0.11"}, {"ip": "::2"}]}
    }
    (port,) = services.service_ports([service], [SLICE], RANGES)
    assert port.external == ("192.0.2.1", "10.1.0.1", "192.0.2.2")
    (port,) = services.service_ports([service], [SLICE], NOWHERE)
    assert port.external == ()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255"]
)
def test_addresses_that_no_traffic_from_outside_has_count_nowhere(address: str) -> None:
    assert not ExternalRanges.of(["0.0.0.0/0"], own=["10.64.0.0/16"]).admits(address)


def test_an_external_address_stays_with_the_service_that_has_it() -> None:
    late = services.service_ports([claiming("late", "2026-01-02T00:00:00Z", "192.0.2.1")], [SLICE], RANGES)
    before = services.assign_external(late, {})
    early = claiming("early", "2026-01-01T00:00:00Z", "192.0.2.1")
    both = services.service_ports([early, claiming("late", "2026-01-02T00:00:00Z", "192.0.2.1")], [], RANGES)
    key = ("192.0.2.1", "tcp", 80)
    assert services.assign_external(both, before) == {key: "ns/late:http"}
    assert services.assign_external(both, {}) == {key: "ns/early:http"}
    assert services.assign_external(both[:1], before) == {key: "ns/early:http"}


def given(namespace: str, name: str, created: str, port: int, *addresses: str) -> dict[str, Any]:
    """A service whose load balancer has these addresses."""
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    ingress = [{"ip": address} for address in addresses]
    spec = {**SERVICE["spec"], "type": "LoadBalancer", "ports": [{"name": "http", "port": port}]}
    return {"metadata": metadata, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}


def test_a_load_balancers_address_is_not_for_an_older_service_that_claims_it() -> None:
    """Also when nobody remembers who had it before."""
    older = claiming("older", "2026-01-01T00:00:00Z", "192.0.2.1")
    ports = services.service_ports(
        [older, given("ns", "lb", "2026-01-02T00:00:00Z", 80, "192.0.2.1")], [], RANGES
    )
    assert services.assign_external(ports, {}) == {("192.0.2.1", "tcp", 80): "ns/lb:http"}


@pytest.mark.parametrize(("namespace", "leads"), [("ns", True), ("other", False)])
def test_a_load_balancers_address_leads_to_services_of_its_namespace_alone(
    namespace: str, leads: bool
) -> None:
    balanced = given(namespace, "lb", "2026-01-02T00:00:00Z", 443, "192.0.2.1")
    ports = services.service_ports([claiming("web", "", "192.0.2.1", "192.0.2.2"), balanced], [], RANGES)
    found = services.assign_external(ports, {("192.0.2.1", "tcp", 80): "ns/web:http"})
    expected = {("192.0.2.2", "tcp", 80): "ns/web:http", ("192.0.2.1", "tcp", 443): f"{namespace}/lb:http"}
    assert found == expected | ({("192.0.2.1", "tcp", 80): "ns/web:http"} if leads else {})


def many(namespace: str, name: str, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A service of `count` ports, and its slice of one endpoint."""
    listed = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, count + 1)]
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": name}
    labels = {"labels": {"kubernetes.io/service-name": name}}
    endpoints = [{"addresses": ["10.64.1.2"]}]
    return (
        {"metadata": metadata, "spec": {**SERVICE["spec"], "ports": listed}},
        {**SLICE, "metadata": {**metadata, **labels}, "ports": listed, "endpoints": endpoints},
    )


def test_services_beyond_what_a_namespace_may_have_lead_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """And take little time, however many ports they have; those of other namespaces lead where they did."""
    half = services.MAX_PARTS // 4
    made = [many("ns", "a", half), many("ns", "b", 60_000), many("ns", "c", half), many("other", "b", half)]
    read = services.ServicePorts(NOWHERE)
    found = read.of([service for service, _ in made], [item for _, item in made])
    by_service: dict[str, list[services.ServicePort]] = {}
    for port in found:
        by_service.setdefault(port.name.partition(":")[0], []).append(port)
    lengths = {name: len(ports) for name, ports in by_service.items()}
    assert lengths == {"ns/a": half, "ns/b": 100, "ns/c": half, "other/b": half}
    assert {name for name, ports in by_service.items() if not ports[-1].backends} == {"ns/b"}
    read.of([service for service, _ in made], [item for _, item in made])
    assert caplog.text.count("service ns/b: its addresses lead nowhere") == 1


def test_addresses_beyond_what_a_namespace_may_claim_lead_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    few, all_of_it = [f"10.1.0.{number}" for number in range(services.MAX_CLAIMS)], range(256)
    listed = [
        claiming("a", "1", *few[1:]),
        claiming("b", "2", *(f"10.1.{net}.{number}" for net in (2, 3) for number in all_of_it)),
        claiming("c", "3", *few),
    ]
    balanced = {
        **claiming("d", "4", "10.1.9.9"),
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
    }
    read = services.ServicePorts(RANGES)
    found = {port.name: port.external for port in read.of([*listed, balanced], [])}
    assert found == {
        "ns/a:http": tuple(few[1:]),
        "ns/b:http": (),
        "ns/c:http": tuple(few),
        "ns/d:http": ("192.0.2.7",),
    }
    read.of([*listed, balanced], [])
    assert caplog.text.count("service ns/b: its external addresses lead nowhere") == 1


def test_the_kubelets_port_is_no_host_port() -> None:
    hosts = [
        services.HostPort("n", "tcp", 10250, services.Backend("10.64.1.2", 80), address)
        for address in ("", "10.64.0.11")
    ]
    assert keys_of_verdicts(rules.table("t", rules.Place("10.64.0.0/16", reserved=(10250,)), [], hosts)) == []


def test_a_malformed_address_leaves_the_other_backends_alone() -> None:
    endpoints = [{"addresses": ["10.64.1.2"]}, {"addresses": ["fe80::1"]}, {"addresses": ["10.64.1.2/8"]}]
    endpoints += [
        {"addresses": ["127.0.0.1"]},
        {"addresses": ["169.254.169.254"]},
        {"addresses": ["0.0.0.0"]},
    ]
    (port,) = services.service_ports([SERVICE], [{**SLICE, "endpoints": endpoints}], NOWHERE)
    assert [item.address for item in port.backends] == ["10.64.1.2"]


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
@pytest.mark.host
def test_the_kernel_accepts_the_rules_of_services_that_claim_one_address() -> None:
    claimants = [claiming("one", "1", "192.0.2.1", "192.0.2.1"), claiming("two", "2", "192.0.2.1")]
    claimants[1]["spec"]["clusterIPs"] = ["10.64.240.9"]
    slices = [
        {**SLICE, "metadata": {**SLICE["metadata"], "labels": {"kubernetes.io/service-name": name}}}
        for name in ("one", "two")
    ]
    ports = services.service_ports(claimants, slices, RANGES)
    document = loaded(rules.table("t", PLACE, ports, [], services.assign_external(ports, {})))
    done = subprocess.run(
        ["unshare", "--net", "nft", "-f", "-"],
        input=document.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_one_number_on_different_addresses_of_the_node_leads_to_different_pods() -> None:
    hosts = [
        services.HostPort("n", "tcp", 8080, services.Backend("10.64.1.2", 80), "127.0.0.1"),
        services.HostPort("n", "tcp", 8080, services.Backend("10.64.1.3", 80), "10.64.0.11"),
        services.HostPort("n", "udp", 8080, services.Backend("10.64.1.4", 80)),
    ]
    keys = keys_of_verdicts(rules.table("t", PLACE, [], hosts))
    assert keys == [["127.0.0.1", "tcp", "8080"], ["10.64.0.11", "tcp", "8080"], ["udp", "8080"]]


def test_what_is_taken_twice_does_not_spoil_the_rules() -> None:
    backend = services.Backend("10.64.1.2", 80)
    port = services.ServicePort("a", "tcp", ("10.64.240.9",), 80, 30080, (backend,))
    hosts = [
        services.HostPort("n", "tcp", number, services.Backend(address, 80))
        for number in (8080, 30080)
        for address in ("10.64.1.2", "10.64.1.3")
    ]
    keys = keys_of_verdicts(rules.table("t", PLACE, [port], hosts))
    assert len(keys) == len({tuple(key) for key in keys}) == 3


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is not installed")
@pytest.mark.host
def test_the_kernel_accepts_the_rules() -> None:
    backends = (services.Backend("10.64.1.2", 80), services.Backend("10.64.1.3", 80))
    ports = [
        services.ServicePort("a", "tcp", ("10.64.240.9",), 80, 30080, backends, affinity_seconds=10800),
        services.ServicePort("b", "udp", ("10.64.240.9",), 53, 0, backends),
        services.ServicePort("c", "tcp", ("10.64.240.10",), 1, 0, ()),
    ]
    hosts = [
        services.HostPort("n", "tcp", 8080, backends[0]),
        services.HostPort("n", "tcp", 8080, backends[1], "127.0.0.1"),
        services.HostPort("n", "tcp", 30080, backends[1]),
    ]
    document = loaded(rules.table("t", rules.Place("10.64.0.0/16", "node01", "10.64.1.0/24"), ports, hosts))
    for extra in (["--check"], []):
        done = subprocess.run(
            ["unshare", "--net", "nft", *extra, "-f", "-"],
            input=document.encode(),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


def test_an_empty_cluster_still_makes_a_table() -> None:
    assert loaded(rules.table("t", PLACE, [])).startswith("add table ip t\n")
    assert keys_of_verdicts(rules.table("t", PLACE, [])) == []


def test_an_address_that_is_refused_is_not_the_next_services() -> None:
    """The resolver's while it starts, which a service may name as its own."""
    resolver_port = services.ServicePort("dns", "udp", ("10.64.240.10",), 53, 0, ())
    backend = services.Backend("10.64.1.2", 53)
    thief = services.ServicePort("thief", "udp", ("10.64.240.10",), 53, 0, (backend,))
    assert keys_of_verdicts(rules.table("t", PLACE, [resolver_port, thief])) == []


def test_ports_without_backends_are_refused() -> None:
    port = services.ServicePort("c", "tcp", ("10.64.240.10",), 1, 0, ())
    table = rules.table("t", PLACE, [port])
    assert list(table.collections["refused"].elements) == ["10.64.240.10 . tcp . 1"]


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
