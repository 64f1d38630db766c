"""Networks that span nodes, with nodes and pods that are network namespaces, and the real CNI plugin."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.namespaces import Namespace, connect, namespaces
from tests.support.network_nodes import PLUGINS, TestNode, addresses, links

from kindling.cluster import node_network
from kindling.cluster.instance import Instance
from kindling.node.networks import overlays, policy
from kindling.node.networks.definitions import parse
from kindling.node.networks.overlays import Overlay, Overlays
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.selection import NetworkSelection

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not (PLUGINS / "bridge").exists(), reason="needs containernetworking-plugins"),
]

BLUE = Overlay("blue")


def config(definition: str = "ns/blue", **changes: Any) -> dict[str, Any]:
    """What the manuals write."""
    return {
        "cniVersion": "0.3.1",
        "name": "blue",
        "type": "ovn-k8s-cni-overlay",
        "topology": "layer2",
        "netAttachDefName": definition,
        **changes,
    }


@dataclass
class Nodes:
    """Two nodes of one machine, and a sandbox on each."""

    first: TestNode
    second: TestNode
    one: Namespace
    other: Namespace

    def address(self) -> None:
        """Give both pods an address of their own choice."""
        for sandbox, last in ((self.one, 1), (self.other, 2)):
            sandbox.run("ip", "addr", "add", f"192.168.9.{last}/24", "dev", "net1")

    def are_joined(self, seconds: float = 5.0) -> bool:
        """Whether one pod reaches the other."""
        return self.one.reaches("192.168.9.2", 80, seconds)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setattr(policy, "STATE", str(tmp_path))
    with namespaces("o-machine", "o-first", "o-second", "o-one", "o-other") as made:
        machine, first, second, one, other = made
        machine.run("ip", "link", "add", "nodes", "type", "bridge")
        machine.run("ip", "addr", "add", "10.64.0.1/24", "dev", "nodes")
        machine.run("ip", "link", "set", "nodes", "up")
        machine.nft(
            node_network.host_rules(Instance(tmp_path, "0a0b0c0d", "10.64.0.0/16", 6443, ("node01",)))
        )
        if Path("/proc/sys/net/bridge").exists():
            machine.sysctl("net.bridge.bridge-nf-call-iptables", "1")
        for node in (first, second):
            connect(machine, node.name[-6:], node, "eth0")
            machine.run("ip", "link", "set", node.name[-6:], "master", "nodes")
        for node, last in ((first, 2), (second, 3)):
            node.run("ip", "addr", "add", f"10.64.0.{last}/24", "dev", "eth0")
            (tmp_path / node.name).mkdir()
        agents = [TestNode(node, tmp_path / node.name) for node in (first, second)]
        yield Nodes(agents[0], agents[1], one, other)


@pytest.mark.feature("NET-23")
def test_pods_of_two_nodes_are_on_one_ethernet_without_addresses(nodes: Nodes) -> None:
    for node, sandbox in ((nodes.first, nodes.one), (nodes.second, nodes.other)):
        node.define("blue", config())
        node.attach(node.pod("pod", "blue"), sandbox)
        assert addresses(sandbox, "net1") == []
        [_, told] = node.status("pod")
        assert told == {"name": "ns/blue", "interface": "net1", "mac": sandbox.mac("net1"), "dns": {}}
        [link] = json.loads(sandbox.run("ip", "-j", "link", "show", "dev", "net1"))
        assert link["mtu"] == 1450, "what the link between the nodes has room for"
    nodes.address()
    nodes.other.serve("192.168.9.2", 80)
    assert nodes.are_joined()
    # Large packets, too.
    send = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(bytes(1400), ('192.168.9.2', 9))"
    )
    with nodes.other.packets("net1") as seen:
        seen.settimeout(5)
        nodes.one.run("python3", "-c", send)
        while len(seen.recv(2000)) < 1400:
            pass


@pytest.mark.feature("NET-23")
def test_the_definition_chooses_the_size_of_packets(nodes: Nodes) -> None:
    for node, sandbox in ((nodes.first, nodes.one), (nodes.second, nodes.other)):
        node.define("blue", config(mtu=1300))
        node.attach(node.pod("pod", "blue"), sandbox)
        [link] = json.loads(sandbox.run("ip", "-j", "link", "show", "dev", "net1"))
        assert link["mtu"] == 1300
    nodes.address()
    nodes.other.serve("192.168.9.2", 80)
    assert nodes.are_joined()


@pytest.mark.feature("NET-28")
def test_a_network_is_the_same_one_in_every_namespace_and_others_are_apart(nodes: Nodes) -> None:
    first, second = nodes.first, nodes.second
    first.define("blue", config())
    first.attach(first.pod("pod", "blue"), nodes.one)
    second.define("of-theirs", config("theirs/of-theirs"), "theirs")
    second.attach(second.pod("pod", "of-theirs", "theirs"), nodes.other)
    nodes.address()
    nodes.other.serve("192.168.9.2", 80)
    assert nodes.are_joined()
    second.define("red", config("theirs/red", name="red"), "theirs")
    second.attach(second.pod("pod", "red", "theirs"), nodes.other)
    nodes.other.run("ip", "addr", "add", "192.168.9.2/24", "dev", "net1")
    assert not nodes.are_joined(1)


def test_the_node_is_not_on_the_network(nodes: Nodes) -> None:
    nodes.first.define("blue", config())
    nodes.first.attach(nodes.first.pod("pod", "blue"), nodes.one)
    for link in (BLUE.bridge, BLUE.tunnel):
        [shown] = json.loads(nodes.first.namespace.run("ip", "-j", "addr", "show", "dev", link))
        assert shown["addr_info"] == []


def test_a_node_with_networks_is_reached_as_before(nodes: Nodes) -> None:
    first, second = nodes.first.namespace, nodes.second.namespace
    first.run("ip", "addr", "add", "fd00::2/64", "dev", "eth0", "nodad")
    second.run("ip", "addr", "add", "fd00::3/64", "dev", "eth0", "nodad")
    nodes.first.define("blue", config())
    nodes.first.attach(nodes.first.pod("pod", "blue"), nodes.one)
    for address in ("10.64.0.2", "fd00::2"):
        first.serve(address, 6443)
        assert second.reaches(address, 6443)
    second.serve("10.64.0.3", 6443)
    assert first.reaches("10.64.0.3", 6443)


def test_pods_cannot_send_into_tunnels(nodes: Nodes) -> None:
    """A pod that knows the number of a network writes what a node would: VXLAN around a frame."""
    first = nodes.first
    first.define("blue", config())
    first.attach(first.pod("pod", "blue"), nodes.one)
    header = (8 << 56 | BLUE.number << 8).to_bytes(8, "big")
    frame = b"\xff" * 6 + bytes.fromhex("020000000001") + b"\x88\xb5" + b"forged" * 10
    send = (
        "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.bind((sys.argv[1], 0));"
        "s.sendto(bytes.fromhex(sys.argv[2]), ('10.64.0.2', 4789))"
    )
    second = nodes.second.namespace
    second.run("ip", "addr", "add", "10.64.2.9/24", "dev", "eth0")
    first.namespace.run("ip", "route", "add", "10.64.2.0/24", "dev", "eth0")

    def arrives(sender: str) -> bool:
        with nodes.one.packets("net1") as seen:
            seen.settimeout(1)
            second.run("python3", "-c", send, sender, (header + frame).hex())
            try:
                while b"forged" not in seen.recv(2000):
                    pass
            except TimeoutError:
                return False
            return True

    assert arrives("10.64.0.3"), "the other node may"
    assert not arrives("10.64.2.9")


def test_a_network_goes_from_a_node_with_its_last_pod(nodes: Nodes) -> None:
    first = nodes.first
    first.define("blue", config())
    pod = first.pod("pod", "blue")
    first.attach(pod, nodes.one)
    sandboxes = {nodes.one.name}
    first.run(lambda networks: networks.sweep(sandboxes))
    assert {BLUE.bridge, BLUE.tunnel} <= links(first.namespace)
    first.detach(nodes.one)
    first.run(lambda networks: networks.sweep(sandboxes))
    assert links(first.namespace) == {"lo", "eth0"}
    # And is there again for the next one.
    first.attach(pod, nodes.one)
    assert {BLUE.bridge, BLUE.tunnel} <= links(first.namespace)


@pytest.mark.parametrize("done", range(7))
def test_what_a_killed_agent_began_is_completed(nodes: Nodes, done: int) -> None:
    first, second = nodes.first, nodes.second
    for command in overlays.commands(BLUE, ())[:done]:
        first.namespace.run("ip", *command.split())
    for node, sandbox in ((first, nodes.one), (second, nodes.other)):
        node.define("blue", config())
        node.attach(node.pod("pod", "blue"), sandbox)
    nodes.address()
    nodes.other.serve("192.168.9.2", 80)
    assert nodes.are_joined()


def test_a_network_that_comes_into_use_while_others_are_removed_stays(nodes: Nodes) -> None:
    used = {BLUE.bridge}

    async def together() -> None:
        made = Overlays()
        await made.prepare(Overlay("old"))
        await asyncio.gather(made.sweep(lambda: used), made.prepare(BLUE), made.sweep(lambda: used))

    nodes.first.run(lambda _: together())
    assert links(nodes.first.namespace) == {"lo", "eth0", BLUE.bridge, BLUE.tunnel}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"topology": "localnet"}, 'topology "localnet" is not one that this node has'),
        ({"topology": ""}, 'topology "" is not one that this node has'),
        ({"subnets": "10.1.0.0/16"}, "this node gives no addresses there"),
        ({"role": "primary"}, "pods have the cluster's network as their primary one"),
        ({"netAttachDefName": "other/blue"}, 'netAttachDefName "other/blue" is not that of the definition'),
        ({"netAttachDefName": ""}, 'netAttachDefName "" is not that of the definition, "ns/blue"'),
        ({"mtu": 70000}, "mtu 70000 is not between 68 and 65535"),
        ({"name": "a b"}, "invalid network config name: a b"),
        ({"cniVersion": "9.0.0"}, "cniVersion '9.0.0' is not known"),
    ],
)
def test_what_nodes_cannot_do_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(NetworkProblem) as raised:
        parse(json.dumps(config(**changes)), NetworkSelection(name="blue", namespace="ns"), ())
    assert problem in str(raised.value)


def test_only_the_first_plugin_of_a_list_may_attach_to_the_network() -> None:
    wanted = NetworkSelection(name="blue", namespace="ns")
    chain = {"cniVersion": "1.0.0", "name": "blue", "plugins": [config(), {"type": "tuning", "mtu": 1400}]}
    found = parse(json.dumps(chain), wanted, ())
    assert (found.overlay, [plugin["type"] for plugin in found.plugins]) == (BLUE, ["bridge", "tuning"])
    chain["plugins"] = [config(), config()]
    with pytest.raises(NetworkProblem, match="is not one that this node runs"):
        parse(json.dumps(chain), wanted, ())


def test_names_are_told_apart_by_links_that_the_kernel_takes() -> None:
    names = [f"network-{number}" for number in range(1000)]
    assert len({Overlay(name).number for name in names}) == 1000
    assert all(len(Overlay(name).bridge) == len(Overlay(name).tunnel) == 15 for name in names)
    assert all(0 < Overlay(name).number < 1 << 24 for name in names)
