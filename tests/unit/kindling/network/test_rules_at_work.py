"""What the services' rules let through, tried in network namespaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import rules, services, tables

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

SUBNET = "10.64.0.0/16"
POD, OTHER_POD, SERVICE, OUTSIDE = "10.64.1.2", "10.64.1.3", "10.64.240.9", "192.0.2.7"
WEB = services.ServicePort("ns/web:http", "tcp", (SERVICE,), 80, 30080, (services.Backend(POD, 8080),))


@dataclass
class Network:
    """A node with a pod behind it and a stranger on another link."""

    node: Namespace
    pod: Namespace
    stranger: Namespace

    def load(self, *ports: services.ServicePort, hosts: tuple[services.HostPort, ...] = ()) -> None:
        external = services.assign_external(ports, {})
        place = rules.Place(SUBNET, pod_gateway="10.64.1.1")
        wanted = rules.table("t", place, ports, hosts, external)
        self.node.nft(tables.replacement(tables.Existing(), wanted))


@pytest.fixture
def network() -> Iterator[Network]:
    with namespaces("node", "pod", "stranger") as (node, pod, stranger):
        connect(node, "pods", pod, "eth0")
        connect(node, "lan", stranger, "eth0")
        node.run("ip", "addr", "add", "10.64.1.1/24", "dev", "pods")
        node.run("ip", "addr", "add", "192.168.77.1/24", "dev", "lan")
        pod.run("ip", "addr", "add", f"{POD}/24", "dev", "eth0")
        pod.run("ip", "addr", "add", f"{OTHER_POD}/24", "dev", "eth0")
        pod.run("ip", "route", "add", "default", "via", "10.64.1.1")
        stranger.run("ip", "addr", "add", "192.168.77.2/24", "dev", "eth0")
        stranger.run("ip", "route", "add", "default", "via", "192.168.77.1")
        node.sysctl("net.ipv4.ip_forward", "1")
        node.sysctl("net.ipv4.conf.pods.route_localnet", "1")
        pod.serve(POD, 8080)
        yield Network(node, pod, stranger)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.64.1.1", "192.168.77.1"])
def test_node_ports_answer_on_every_address_of_the_node(network: Network, address: str) -> None:
    network.load(WEB)
    assert network.node.reaches(address, 30080)


def test_node_ports_answer_to_others(network: Network) -> None:
    network.load(WEB)
    assert network.stranger.reaches("192.168.77.1", 30080)


def test_a_pod_does_not_pass_for_its_node_through_a_service(network: Network) -> None:
    """The machine, the stranger here, lets nodes in where it keeps pods out."""
    network.stranger.serve("192.168.77.2", 22)
    network.load(replace(WEB, backends=(services.Backend("192.168.77.2", 22),)))
    assert network.pod.seen_as("192.168.77.1", 30080) == "10.64.1.1"
    assert network.pod.seen_as(SERVICE, 80) == POD
    assert network.node.seen_as("192.168.77.1", 30080) == "192.168.77.1"


def test_what_two_services_claim_does_not_stop_a_third(network: Network) -> None:
    thief = replace(WEB, name="ns/thief:http", addresses=("10.64.240.20",), node_port=0, external=(OUTSIDE,))
    network.load(replace(WEB, external=(OUTSIDE, OUTSIDE)), thief, replace(thief, name="ns/other:http"))
    assert network.stranger.reaches(SERVICE, 80)
    assert network.stranger.reaches(OUTSIDE, 80)


def test_an_external_address_that_is_the_nodes_own_leads_nowhere(network: Network) -> None:
    network.node.serve("192.168.77.1", 80)
    network.load(replace(WEB, backends=(services.Backend(POD, 1),), external=("192.168.77.1",)))
    assert network.stranger.reaches("192.168.77.1", 80)


def test_a_host_port_takes_no_address_that_is_not_the_nodes(network: Network) -> None:
    nowhere = services.Backend(OTHER_POD, 1)
    hosts = tuple(services.HostPort("n", "tcp", 80, nowhere, address) for address in (SERVICE, OUTSIDE))
    network.load(replace(WEB, external=(OUTSIDE,)), hosts=hosts)
    assert network.stranger.reaches(SERVICE, 80)
    assert network.stranger.reaches(OUTSIDE, 80)


def test_nobody_reaches_the_nodes_loopback_from_outside(network: Network) -> None:
    network.node.serve("127.0.0.1", 9000)
    hosts = (services.HostPort("n", "tcp", 9001, services.Backend(POD, 8080), "127.0.0.1"),)
    network.load(WEB, hosts=hosts)
    assert network.node.reaches("127.0.0.1", 9001)
    # Two addresses that are not loopback here, sent to the node's loopback address.
    network.pod.run("ip", "route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local", check=False)
    network.pod.run("ip", "addr", "flush", "dev", "lo")
    network.pod.run("ip", "route", "add", "127.0.0.0/8", "via", "10.64.1.1")
    network.pod.sysctl("net.ipv4.conf.all.route_localnet", "1")
    for port in (9000, 9001, 30080):
        assert not network.pod.reaches("127.0.0.1", port, 0.5)
