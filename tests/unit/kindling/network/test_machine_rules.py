"""What of the machine a cluster's network reaches, tried in network namespaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import machine_rules

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft"),
]

GATEWAY, LAN = "10.64.0.1", "192.168.77.1"
GUARD = machine_rules.guard("t", "kd1", GATEWAY, 6443, ("10.64.0.0/24", "fd6b::/64"))


def speak_as(cluster: Namespace, address: str) -> None:
    """Let what the cluster's side sends come from a pod, or from the node."""
    cluster.run("ip", "route", "replace", "10.64.0.0/24", "dev", "eth0", "src", address)
    cluster.run("ip", "route", "replace", "default", "via", GATEWAY, "src", address)


@dataclass
class Machine:
    """A machine with a cluster on one link and its owner's network on another."""

    itself: Namespace
    cluster: Namespace
    owner: Namespace


@pytest.fixture
def machine() -> Iterator[Machine]:
    with namespaces("machine", "cluster", "owner") as (itself, cluster, owner):
        connect(itself, "kd1", cluster, "eth0")
        connect(itself, "lan", owner, "eth0")
        for link, address in (("kd1", GATEWAY), ("lan", LAN)):
            itself.run("ip", "addr", "add", f"{address}/24", "dev", link)
        itself.run("ip", "route", "add", "10.64.1.0/24", "dev", "kd1")
        cluster.run("ip", "addr", "add", "10.64.0.11/24", "dev", "eth0")
        cluster.run("ip", "addr", "add", "10.64.1.2/32", "dev", "eth0")
        speak_as(cluster, "10.64.1.2")
        owner.run("ip", "addr", "add", "192.168.77.2/24", "dev", "eth0")
        itself.nft(GUARD)
        yield Machine(itself, cluster, owner)


def test_nodes_reach_what_images_come_from(machine: Machine) -> None:
    machine.itself.serve(LAN, 5000)
    assert not machine.cluster.reaches(LAN, 5000)
    speak_as(machine.cluster, "10.64.0.11")
    assert machine.cluster.reaches(LAN, 5000)


def test_pods_reach_the_api_and_the_resolver_alone(machine: Machine) -> None:
    for address, port in ((GATEWAY, 6443), (GATEWAY, 5353), (GATEWAY, 22), (LAN, 22), (LAN, 6443)):
        machine.itself.serve(address, port)
    assert machine.cluster.reaches(GATEWAY, 6443)
    assert not machine.cluster.reaches(GATEWAY, 5353)
    machine.itself.nft(machine_rules.serve("t", [("tcp", 5353), ("udp", 5353)]))
    assert machine.cluster.reaches(GATEWAY, 5353)
    for address, port in ((GATEWAY, 22), (LAN, 22), (LAN, 6443)):
        assert not machine.cluster.reaches(address, port)
        assert address == GATEWAY or machine.owner.reaches(address, port)


def test_opened_ports_stay_when_the_guard_is_put_up_again(machine: Machine) -> None:
    machine.itself.serve(GATEWAY, 5353)
    machine.itself.nft(machine_rules.serve("t", [("tcp", 5353)]))
    machine.itself.nft(GUARD)
    assert machine.cluster.reaches(GATEWAY, 5353)
    machine.itself.nft(machine_rules.serve("t", [("tcp", 5354)]))
    assert not machine.cluster.reaches(GATEWAY, 5353)


def test_the_machine_reaches_the_cluster(machine: Machine) -> None:
    machine.cluster.serve("10.64.0.11", 10250)
    assert machine.itself.reaches("10.64.0.11", 10250)


def test_ipv6_is_no_way_around(machine: Machine) -> None:
    for namespace, link, address in (
        (machine.itself, "kd1", "fd00::1"),
        (machine.cluster, "eth0", "fd00::2"),
        (machine.itself, "kd1", "fd6b::1"),
        (machine.cluster, "eth0", "fd6b::b"),
    ):
        namespace.run("ip", "addr", "add", f"{address}/64", "dev", link, "nodad")
    machine.itself.serve("fd00::1", 22)
    machine.itself.serve("fd6b::1", 6443)
    machine.cluster.serve("fd00::2", 22)
    assert machine.itself.reaches("fd00::2", 22)
    assert not machine.cluster.reaches("fd00::1", 22, 0.5)
    assert machine.cluster.reaches("fd6b::1", 6443), "a node"
    machine.cluster.run("ip", "addr", "del", "fd6b::b/64", "dev", "eth0")
    machine.cluster.run("ip", "route", "add", "fd6b::/64", "dev", "eth0", "src", "fd00::2")
    assert not machine.cluster.reaches("fd6b::1", 6443, 0.5)
    machine.cluster.run("busybox", "ping6", "-c", "1", "-W", "5", "fd6b::1")
