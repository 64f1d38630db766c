"""What the services' rules let through by IPv6, tried in network namespaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import rules, services, tables
from kindling.network.external import ExternalRanges

SUBNET, POD, OTHER_POD, SERVICE = "fd6b::/48", "fd6b:0:0:1::2", "fd6b:0:0:1::3", "fd6b:0:0:f0::9"
OUTSIDE, NODE, STRANGER, GATEWAY = "2001:db8::7", "fd77::1", "fd77::2", "fd6b:0:0:1::1"
WEB = services.ServicePort("ns/web:http", "tcp", (SERVICE,), 80, 30080, (services.Backend(POD, 8080),))
PLACE = rules.Place(SUBNET, pod_gateway=GATEWAY, family=rules.IPV6)


@dataclass
class Network:
    """A node with a pod behind it and a stranger on another link."""

    node: Namespace
    pod: Namespace
    stranger: Namespace

    def load(self, *ports: services.ServicePort, hosts: tuple[services.HostPort, ...] = ()) -> None:
        wanted = rules.table("t", PLACE, ports, hosts, services.assign_external(ports, {}))
        self.node.nft(tables.replacement(tables.Existing(), wanted))


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("nft") is None:
        pytest.skip("needs root and nft")
    with namespaces("node", "pod", "stranger") as (node, pod, stranger):
        connect(node, "pods", pod, "eth0")
        connect(node, "lan", stranger, "eth0")
        for namespace, link, address in (
            (node, "pods", GATEWAY),
            (node, "lan", NODE),
            (pod, "eth0", POD),
            (stranger, "eth0", STRANGER),
        ):
            namespace.run("ip", "addr", "add", f"{address}/64", "dev", link, "nodad")
        # Another pod's: this one speaks with its own.
        pod.run("ip", "addr", "add", f"{OTHER_POD}/64", "dev", "eth0", "nodad", "preferred_lft", "0")
        pod.run("ip", "route", "add", "default", "via", GATEWAY)
        stranger.run("ip", "route", "add", "default", "via", NODE)
        node.run("ip", "route", "add", "default", "via", STRANGER)
        node.sysctl("net.ipv6.conf.all.forwarding", "1")
        pod.serve("::", 8080)
        yield Network(node, pod, stranger)


@pytest.mark.host
@pytest.mark.feature("ACC-30")
def test_a_service_answers_on_its_addresses_and_node_ports(network: Network) -> None:
    network.load(replace(WEB, external=(OUTSIDE,)))
    for address, port in ((SERVICE, 80), (OUTSIDE, 80), (NODE, 30080), (GATEWAY, 30080)):
        assert network.stranger.reaches(address, port), address
        assert network.node.reaches(address, port), address
        assert network.pod.reaches(address, port), address


@pytest.mark.host
def test_a_pod_does_not_pass_for_its_node_through_a_service(network: Network) -> None:
    network.stranger.serve(STRANGER, 22)
    network.load(replace(WEB, backends=(services.Backend(STRANGER, 22),)))
    assert network.pod.seen_as(NODE, 30080) == GATEWAY
    assert network.node.seen_as(NODE, 30080) == NODE


@pytest.mark.host
def test_the_loopback_address_is_left_to_the_nodes_own_servers(network: Network) -> None:
    network.node.serve("::1", 30080)
    network.load(WEB)
    assert network.node.seen_as("::1", 30080) == "::1"


@pytest.mark.host
def test_host_ports_and_affinity_hold_and_ports_without_backends_are_refused(network: Network) -> None:
    backends = tuple(services.Backend(address, 8080) for address in (POD, OTHER_POD))
    empty = replace(WEB, name="ns/empty:http", addresses=("fd6b:0:0:f0::a",), backends=(), node_port=0)
    hosts = (
        services.HostPort("n", "tcp", 81, backends[0]),
        services.HostPort("n", "tcp", 82, backends[0], NODE),
    )
    network.load(replace(WEB, backends=backends, affinity_seconds=60), empty, hosts=hosts)
    assert network.stranger.reaches(SERVICE, 80)
    assert network.stranger.reaches(NODE, 81)
    assert network.stranger.reaches(NODE, 82)
    assert not network.node.reaches(GATEWAY, 82, 0.5)
    assert not network.stranger.reaches("fd6b:0:0:f0::a", 80, 5)


def test_each_family_has_its_own_addresses_and_backends() -> None:
    def of_family(kind: str, *addresses: str) -> dict[str, object]:
        return {
            "metadata": {"namespace": "n", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": kind,
            "ports": [{"name": "", "port": 8080}],
            "endpoints": [{"addresses": [address]} for address in addresses],
        }

    spec = {
        "clusterIP": "10.64.240.9",
        "clusterIPs": ["10.64.240.9", "fd6b:0:0:f0::0009"],
        "externalIPs": ["192.0.2.7", "2001:db8::7", "::ffff:127.0.0.1", "fd6b::b"],
        "ports": [{"port": 80, "nodePort": 30080}],
    }
    service = {"metadata": {"namespace": "n", "name": "web"}, "spec": spec}
    slices = [
        of_family("IPv4", "10.64.1.2", "fd6b::4"),
        of_family("IPv6", POD, "::1", "fe80::1", "ff02::1", "::ffff:10.64.1.9", "10.64.1.3"),
    ]
    allowed = ExternalRanges.of(["192.0.2.0/24", "::/0"], own=["10.64.0.0/16", SUBNET])
    (four,) = services.service_ports([service], slices, allowed)
    (six,) = services.service_ports([service], slices, allowed, 6)
    assert (four.addresses, four.external) == (("10.64.240.9",), ("192.0.2.7",))
    assert (six.addresses, six.external) == ((SERVICE,), ("2001:db8::7",))
    assert four.backends == (services.Backend("10.64.1.2", 8080),)
    assert six.backends == (services.Backend(POD, 8080),)
    alone = {**service, "spec": {**spec, "clusterIPs": ["10.64.240.9"]}}
    assert services.service_ports([alone], slices, allowed, 6) == []


def test_one_address_in_two_spellings_is_one_key_of_the_rules() -> None:
    """The kernel refuses a table with both, and with it everybody's services."""
    spellings = ("fd00:77::1", "FD00:0077:0:0::1", "fd00:77:0::1")
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": text} for text in spellings]
    ports += [{"containerPort": 80, "hostPort": 81, "hostIP": text} for text in ("::", "0:0::0", "0.0.0.0")]
    hosts = []
    for number, port in enumerate(ports):
        address = f"fd00:64::{number + 1}"
        status = {"phase": "Running", "podIPs": [{"ip": address}]}
        pod = {"spec": {"nodeName": "n", "containers": [{"ports": [port]}]}, "status": status}
        hosts += services.host_ports([pod], 6)
    table = rules.table("t", rules.Place("fd00:64::/48", "n", family=rules.IPV6), [], hosts)
    assert list(table.collections["bound"].elements) == ["fd00:77::1 . tcp . 8080"]
    assert list(table.collections["everywhere"].elements) == ["tcp . 81"]


def test_host_ports_lead_to_the_pods_address_of_each_family() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 80, "hostPort": 81, "hostIP": NODE}]
    status = {"phase": "Running", "podIP": "10.64.1.2", "podIPs": [{"ip": "10.64.1.2"}, {"ip": POD}]}
    pod = {"spec": {"nodeName": "n", "containers": [{"ports": ports}]}, "status": status}
    assert [(item.port, item.backend.address) for item in services.host_ports([pod])] == [(8080, "10.64.1.2")]
    assert [(item.port, item.backend.address) for item in services.host_ports([pod], 6)] == [
        (81, POD),
        (8080, POD),
    ]
