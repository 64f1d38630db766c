"""What gets off a pod's link, tried with a hostile pod beside a victim on one bridge."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.frames import (
    ARP,
    BROADCAST,
    IPV4,
    IPV6,
    LAST,
    ROUTER,
    VLAN,
    arp,
    frame,
    ip,
    is_heard,
)
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import pod_filter

RESULT: dict[str, Any] = {
    "Interfaces": {
        "cni0": {"IPConfigs": None, "Mac": "9a:00:00:00:00:01", "Sandbox": ""},
        "eth0": {
            "IPConfigs": [{"IP": "10.64.1.66", "Gateway": "10.64.1.1"}],
            "Mac": "9A:00:00:00:00:02",
            "Sandbox": "/run/netns/cni-1",
        },
        "lo": {
            "IPConfigs": [{"IP": "127.0.0.1", "Gateway": ""}, {"IP": "::1", "Gateway": ""}],
            "Mac": "00:00:00:00:00:00",
            "Sandbox": "/run/netns/cni-1",
        },
        "veth1": {"IPConfigs": None, "Mac": "9a:00:00:00:00:03", "Sandbox": ""},
    }
}
GATEWAY, HOSTILE, VICTIM = "10.64.1.1", "10.64.1.66", "10.64.1.2"


def test_a_link_is_read_from_the_cni_result() -> None:
    link = pod_filter.pod_link(RESULT)
    assert link == pod_filter.PodLink("veth1", "9a:00:00:00:00:02", (HOSTILE,))
    assert pod_filter.pod_link(None) is None
    assert pod_filter.pod_link({"Interfaces": {}}) is None


@pytest.mark.parametrize("missing", ["veth1", "eth0"])
def test_half_a_link_is_an_error(missing: str) -> None:
    interfaces = {name: item for name, item in RESULT["Interfaces"].items() if name != missing}
    with pytest.raises(ValueError, match="one link"):
        pod_filter.pod_link({"Interfaces": interfaces})


# At work.


@dataclass
class Bridge:
    """A node's bridge with two pods on it."""

    node: Namespace
    hostile: Namespace
    victim: Namespace

    @property
    def own(self) -> str:
        return self.hostile.mac("eth0")

    def arrives(self, sent: bytes) -> bool:
        """Whether a frame of the hostile pod gets to the victim."""
        last = frame(self.own, IPV4, ip(HOSTILE, content=LAST))
        with self.victim.packets("eth0") as ear, self.hostile.packets("eth0") as mouth:
            return is_heard(ear, mouth, sent, last)


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    if os.geteuid() != 0 or shutil.which("nft") is None:
        pytest.skip("needs root and nft")
    with namespaces("node", "hostile", "victim") as (node, hostile, victim):
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        node.run("ip", "addr", "add", f"{GATEWAY}/24", "dev", "cni0")
        node.run("ip", "link", "set", "cni0", "up")
        for pod, link, address in ((hostile, "veth1", HOSTILE), (victim, "veth2", VICTIM)):
            connect(node, link, pod, "eth0")
            node.run("ip", "link", "set", link, "master", "cni0")
            node.run("bridge", "link", "set", "dev", link, "hairpin", "on")
            pod.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            node.nft(pod_filter.ruleset(pod_filter.PodLink(link, pod.mac("eth0"), (address,))))
        yield Bridge(node, hostile, victim)


@pytest.mark.host
def test_pods_reach_each_other_and_the_node(bridge: Bridge) -> None:
    bridge.victim.serve(VICTIM, 80)
    bridge.node.serve(GATEWAY, 80)
    assert bridge.hostile.reaches(VICTIM, 80)
    assert bridge.hostile.reaches(GATEWAY, 80)
    assert bridge.arrives(frame(bridge.own, ARP, arp(bridge.own, HOSTILE)))
    assert bridge.arrives(frame(bridge.own, ARP, arp(bridge.own, "0.0.0.0", operation=1)))


@pytest.mark.host
def test_arp_speaks_for_the_pod_alone(bridge: Bridge) -> None:
    for sender in (GATEWAY, VICTIM, "10.64.1.67"):
        assert not bridge.arrives(frame(bridge.own, ARP, arp(bridge.own, sender)))
    assert not bridge.arrives(frame(bridge.own, ARP, arp(bridge.victim.mac("eth0"), HOSTILE)))
    # The same, with lengths that would shift the addresses.
    shifted = struct.pack(">HHBBH", 1, 0x0800, 6, 16, 2) + arp(bridge.own, HOSTILE)[8:]
    assert not bridge.arrives(frame(bridge.own, ARP, shifted))


@pytest.mark.host
def test_packets_carry_the_pods_own_address_and_card(bridge: Bridge) -> None:
    for source in (VICTIM, GATEWAY, "10.64.0.11", "192.0.2.1", "0.0.0.0"):
        assert not bridge.arrives(frame(bridge.own, IPV4, ip(source)))
    assert not bridge.arrives(frame(bridge.victim.mac("eth0"), IPV4, ip(HOSTILE)))
    assert not bridge.arrives(frame("02:00:00:00:00:99", IPV4, ip(HOSTILE)))


@pytest.mark.host
def test_a_pod_answers_nobodys_dhcp(bridge: Bridge) -> None:
    assert not bridge.arrives(frame(bridge.own, IPV4, ip(HOSTILE, ports=(67, 68))))


@pytest.mark.host
@pytest.mark.parametrize(
    ("kind", "payload"),
    [(IPV6, ROUTER), (0x8100, VLAN), (0x88A8, VLAN), (0x88CC, b""), (0x8864, b"")],
    ids=["router", "vlan", "vlan-of-vlans", "lldp", "pppoe"],
)
def test_other_protocols_stay_in_the_pod(bridge: Bridge, kind: int, payload: bytes) -> None:
    """IPv6 (with which routers announce themselves), VLAN tags, LLDP, PPPoE."""
    assert not bridge.arrives(frame(bridge.own, kind, payload))


@pytest.mark.host
def test_the_bridge_never_learns_a_neighbours_mac_from_a_pod(bridge: Bridge) -> None:
    stolen = bridge.victim.mac("eth0")
    with bridge.hostile.packets("eth0") as mouth:
        for target in ("01:80:c2:00:00:0e", "01:80:c2:00:00:00", BROADCAST):
            mouth.send(frame(stolen, 0x88CC, b"x" * 46, target))
    learnt = bridge.node.run("bridge", "fdb", "show", "br", "cni0").splitlines()
    assert not any(line.startswith(stolen) and "veth1" in line for line in learnt)


@pytest.mark.host
def test_filters_are_replaced_by_the_same_and_removed(bridge: Bridge) -> None:
    link = pod_filter.PodLink("veth1", bridge.own, (HOSTILE,))
    before = bridge.node.run("nft", "list", "ruleset")
    bridge.node.nft(pod_filter.ruleset(link))
    assert bridge.node.run("nft", "list", "ruleset") == before
    bridge.node.nft(pod_filter.removal(["veth1"]))
    assert "chain veth1" not in bridge.node.run("nft", "list", "ruleset")
