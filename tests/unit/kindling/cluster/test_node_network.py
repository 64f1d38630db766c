"""The network between nodes: what the kernel lets pass on links that are made for real."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.cluster import node_network
from kindling.cluster.instance import Instance

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root, nft"),
]

_DIAL_FROM = """
import socket, sys
with socket.create_connection((sys.argv[2], 80), timeout=5, source_address=(sys.argv[1], 0)) as made:
    print(made.recv(64).decode())
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Namespace, Namespace]]:
    """Two nodes of a machine, with the bridge of their pods."""
    instance = Instance(tmp_path, "0a0b0c0d", "10.64.0.0/16", 6443, ("node01", "node02"))

    def make() -> None:
        node_network.create(instance)
        for node in instance.nodes():
            node_network.connect(instance, node)

    with namespaces("machine", "one", "two") as (machine, *made):
        for node, namespace in zip(instance.nodes(), made, strict=True):
            node.namespaces.mkdir(parents=True)
            (node.namespaces / "net").symlink_to(f"/run/netns/{namespace.name}")
        machine.inside(make)
        for node, namespace in zip(instance.nodes(), made, strict=True):
            namespace.run("ip", "link", "add", "cni0", "type", "bridge")
            namespace.run("ip", "addr", "add", f"{node.pod_gateways[0]}/24", "dev", "cni0")
            namespace.run("ip", "link", "set", "cni0", "up")
        one, two = made
        yield one, two


def test_packets_with_the_address_of_the_bridge_of_pods_find_the_other_node(
    nodes: tuple[Namespace, Namespace],
) -> None:
    one, two = nodes
    two.serve("10.64.2.1", 80)
    # The source of calls of node ports that go on to pods elsewhere. Nobody has asked for the node before.
    assert one.run("ip", "neigh", "show", "dev", node_network.NODE_LINK) == ""
    assert one.run(sys.executable, "-c", _DIAL_FROM, "10.64.1.1", "10.64.2.1") == "answered 10.64.1.1\n"


@pytest.mark.parametrize("version", [4, 6])
def test_what_is_sent_to_a_pod_of_no_node_stays_on_the_machine(version: int) -> None:
    instance = Instance(Path("/nowhere"), "0a0b0c0d", "10.64.0.0/16", 6443, ("node01",))
    instance = replace(instance, subnet6="fd6b:a0b::/48", has_ipv6=True)
    pod, gateway = {4: ("10.64.2.2", "192.0.2.1"), 6: ("fd6b:a0b:0:2::2", "2001:db8::1")}[version]
    length = {4: 24, 6: 64}[version]
    with namespaces("machine", "outside") as (machine, outside):
        connect(machine, "up0", outside, "card")
        for place, link, address in ((machine, "up0", gateway[:-1] + "2"), (outside, "card", gateway)):
            options = ("nodad",) if version == 6 else ()
            place.run("ip", "addr", "add", f"{address}/{length}", "dev", link, *options)
        machine.run("ip", "route", "add", "default", "via", gateway)
        outside.run("ip", "addr", "add", pod, "dev", "lo")
        outside.serve(pod, 80)
        assert machine.reaches(pod, 80), "so far a stranger answers"
        machine.inside(lambda: node_network.create(instance))
        assert not machine.reaches(pod, 80, 0.5)
