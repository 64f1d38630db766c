"""Links of nodes for secondary networks: what they join, and what they are kept from."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.cluster import bringup, node_links
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance, load

INSTANCE = Instance(Path("/x"), "0a0b0c0d", "10.64.0.0/16", 6443, ("node01", "node02"), node_links=("lan0",))

_SEND = """
import socket, sys
sender = socket.socket(type=socket.SOCK_DGRAM)
sender.bind((sys.argv[1], 0))
sender.sendto(b"spoofed", ("10.64.1.2", 9))
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root, nft")


@pytest.mark.parametrize("name", ["eth0", "cni0", "lo", "", "../x", "sixteen-letters-", "a b", "-h"])
def test_names_that_nodes_cannot_give(name: str) -> None:
    assert node_links.problem_of(name)
    assert not node_links.problem_of("lan0")


def test_names_on_the_machine_are_short_enough_and_different() -> None:
    names = tuple(f"node{number:03}" for number in range(1, 201))
    instance = Instance(Path("/x"), "0a0b0c0d", "10.64.0.0/16", 6443, names, node_links=("a",) * 8)
    made = [node_links.switch_name(instance, position) for position in range(8)]
    made += [node_links.port_name(instance, at, node) for at in range(8) for node in instance.nodes()]
    made += [node.host_link for node in instance.nodes()]
    assert len(set(made)) == len(made)
    assert max(map(len, made)) <= 15


def test_links_are_added_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kindling.cluster.instance.REGISTRY", tmp_path / "registry")
    (tmp_path / "state").mkdir()
    made = bringup._load_or_create(bringup.UpOptions(tmp_path / "state", node_links=("lan0", "lan0")))
    assert (made.node_links, made.isolate_networks) == (("lan0",), False)
    options = bringup.UpOptions(tmp_path / "state", node_links=("lan1",), isolate_networks=True)
    assert bringup._load_or_create(options).node_links == ("lan0", "lan1")
    made = bringup._load_or_create(bringup.UpOptions(tmp_path / "state"))
    assert (made.node_links, made.isolate_networks) == (("lan0", "lan1"), True)
    assert load(tmp_path / "state") == made
    with pytest.raises(SetupError, match="at most 8"):
        bringup._load_or_create(bringup.UpOptions(tmp_path / "state", node_links=tuple("abcdefgh")))


@pytest.mark.host
@needs_root
def test_a_switch_joins_nodes_and_nothing_else() -> None:
    switch = node_links.switch_name(INSTANCE, 0)
    with namespaces("machine", "one", "two") as (machine, one, two):
        machine.run("ip", "link", "add", switch, "type", "bridge")
        machine.run("ip", "link", "set", switch, "up")
        machine.run("ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
        for number, node in ((1, one), (2, two)):
            port = node_links.port_name(INSTANCE, 0, INSTANCE.nodes()[number - 1])
            connect(machine, port, node, "lan0")
            machine.run("ip", "link", "set", port, "master", switch)
            node.run("ip", "addr", "add", f"10.200.0.{number}/24", "dev", "lan0")
            node.run("ip", "route", "add", "192.0.2.1/32", "dev", "lan0")
        machine.run("ip", "route", "add", "10.200.0.0/24", "dev", switch)
        machine.serve("192.0.2.1", 80)
        two.serve("10.200.0.2", 80)
        assert one.reaches("192.0.2.1", 80), "a machine answers on every link for all of its addresses"
        machine.nft(node_links.closed(INSTANCE))
        assert not one.reaches("192.0.2.1", 80, 0.5)
        assert one.reaches("10.200.0.2", 80)


@pytest.mark.host
@needs_root
def test_a_secondary_network_does_not_lead_to_the_pod_network() -> None:
    with namespaces("node", "machine", "pod", "guest") as (node, machine, pod, guest):
        joined = (("eth0", machine, "10.64.0"), ("cni0", pod, "10.64.1"), ("br1", guest, "10.9.0"))
        for link, other, address in joined:
            connect(node, link, other, "card")
            node.run("ip", "addr", "add", f"{address}.1/24", "dev", link)
            other.run("ip", "addr", "add", f"{address}.2/24", "dev", "card")
            other.run("ip", "route", "add", "default", "via", f"{address}.1")
        node.sysctl("net.ipv4.ip_forward", "1")
        for place, address in zip(
            (machine, pod, guest, node), ("10.64.0.2", "10.64.1.2", "10.9.0.2", "10.9.0.1"), strict=True
        ):
            place.serve(address, 80)
        assert guest.reaches("10.64.0.2", 80), "so far the node routes"
        assert _arrives(guest, pod, "10.64.0.9")
        node.nft(node_links.guard((INSTANCE.subnet, "fd00:64::/48")))
        for address in ("10.64.0.2", "10.64.1.2"):
            assert not guest.reaches(address, 80, 0.5)
        assert not _arrives(guest, pod, "10.64.0.9")
        assert guest.reaches("10.9.0.1", 80), "the node's own address on the network"
        assert machine.reaches("10.9.0.2", 80), "what a port of the node leads to"
        assert pod.reaches("10.64.0.2", 80)
        assert machine.reaches("10.64.1.2", 80)


def _arrives(sender: Namespace, receiver: Namespace, source: str) -> bool:
    """Whether a packet with another's address gets to the receiver."""
    sender.run("ip", "addr", "replace", f"{source}/32", "dev", "card")
    with receiver.packets("card") as raw:
        raw.settimeout(0.5)
        sender.run(sys.executable, "-c", _SEND, source)
        try:
            while b"spoofed" not in raw.recv(2048):
                continue
        except TimeoutError:
            return False
    return True


def test_only_the_links_of_a_stopped_node_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr("kindling.cluster.machine.run", lambda command, **_: commands.append(command))
    instance = replace(INSTANCE, node_links=("lan0", "lan1"))
    node = instance.node("node02")
    node_links.disconnect(instance, node)
    ports = [node_links.port_name(instance, position, node) for position in (0, 1)]
    assert commands == [["ip", "link", "del", port] for port in ports]


def test_a_nodes_guard_knows_the_clusters_addresses_of_both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr("kindling.cluster.machine.nft", lambda rules, **_: loaded.append(rules))
    monkeypatch.setattr("kindling.cluster.machine.run", lambda *_args, **_options: "there")
    instance = replace(INSTANCE, subnet6="fd00:64::/48", has_ipv6=True)
    node_links.connect(instance, instance.node("node01"))
    assert f"ip saddr {INSTANCE.subnet} drop" in loaded[0]
    assert "ip6 saddr fd00:64::/48 drop" in loaded[0]
