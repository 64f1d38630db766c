"""What gets off a pod's link, tried with a hostile pod beside a victim on one bridge."""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from tests.support.frames import (
    ADVERTISEMENT,
    ARP,
    BROADCAST,
    DESTINATION_OPTIONS,
    FRAGMENT,
    ICMP6,
    IPV4,
    IPV6,
    LAST,
    ROUTER,
    SENT,
    SOLICITATION,
    UDP,
    VLAN,
    arp,
    fragment,
    frame,
    icmp6,
    ip,
    ip6,
    is_heard,
    link_option,
    neighbour,
    udp6,
)
from tests.support.namespaces import Namespace, connect, namespaces

from kindling.network import pod_filter

RESULT: dict[str, Any] = {
    "Interfaces": {
        "cni0": {"IPConfigs": None, "Mac": "9a:00:00:00:00:01", "Sandbox": ""},
        "eth0": {
            "IPConfigs": [
                {"IP": "10.64.1.66", "Gateway": "10.64.1.1"},
                {"IP": "fd6b:0:0:1::66", "Gateway": "fd6b:0:0:1::1"},
            ],
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
GATEWAY6, HOSTILE6, VICTIM6 = "fd6b:0:0:1::1", "fd6b:0:0:1::66", "fd6b:0:0:1::2"
VLAN6 = struct.pack(">HH", 5, IPV6) + ip6(HOSTILE6, icmp6(128))


def test_a_link_is_read_from_the_cni_result() -> None:
    link = pod_filter.pod_link(RESULT)
    assert link == pod_filter.PodLink("veth1", "9a:00:00:00:00:02", (HOSTILE, HOSTILE6))
    assert pod_filter.pod_link({}) is None
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
    mouth: socket.socket
    ear: socket.socket

    @cached_property
    def own(self) -> str:
        return self.hostile.mac("eth0")

    def arrives(self, sent: bytes) -> bool:
        """Whether a frame of the hostile pod gets to the victim."""
        last = frame(self.own, IPV4, ip(HOSTILE, content=LAST))
        return is_heard(self.ear, self.mouth, sent, last)

    def discovers(self, packet: bytes, source: str = "", trailer: bytes = b"") -> bool:
        """Whether a packet of IPv6 gets to the victim, byte by byte. It may be followed by other bytes."""
        last = frame(self.own, IPV4, ip(HOSTILE, content=LAST))
        sent = frame(source or self.own, IPV6, packet + trailer)
        return is_heard(self.ear, self.mouth, sent, last, packet)

    def sends(self, content: bytes, header: int = ICMP6, source: str = "") -> bool:
        """Whether a packet of the hostile pod's own IPv6 address, or of another, gets to the victim."""
        return self.discovers(ip6(source or HOSTILE6, content, header=header))


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    if os.geteuid() != 0 or shutil.which("nft") is None:
        pytest.skip("needs root and nft")
    with namespaces("node", "hostile", "victim") as (node, hostile, victim):
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        node.run("ip", "addr", "add", f"{GATEWAY}/24", "dev", "cni0")
        node.run("ip", "link", "set", "cni0", "up")
        node.run("ip", "addr", "add", f"{GATEWAY6}/64", "dev", "cni0", "nodad")
        pods = ((hostile, "veth1", (HOSTILE, HOSTILE6)), (victim, "veth2", (VICTIM, VICTIM6)))
        for pod, link, (address, address6) in pods:
            pod.sysctl("net.ipv6.conf.default.accept_dad", "0")
            connect(node, link, pod, "eth0")
            node.run("ip", "link", "set", link, "master", "cni0")
            node.run("bridge", "link", "set", "dev", link, "hairpin", "on")
            pod.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            pod.run("ip", "addr", "add", f"{address6}/64", "dev", "eth0", "nodad")
            node.nft(pod_filter.ruleset(pod_filter.PodLink(link, pod.mac("eth0"), (address, address6))))
        with hostile.packets("eth0") as mouth, victim.packets("eth0") as ear:
            yield Bridge(node, hostile, victim, mouth, ear)


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
    [(IPV6, ROUTER), (0x8100, VLAN), (0x8100, VLAN6), (0x88A8, VLAN), (0x88CC, b""), (0x8864, b"")],
    ids=["router", "vlan", "vlan-ipv6", "vlan-of-vlans", "lldp", "pppoe"],
)
def test_other_protocols_stay_in_the_pod(bridge: Bridge, kind: int, payload: bytes) -> None:
    """Routers, VLAN tags, LLDP, PPPoE."""
    assert not bridge.arrives(frame(bridge.own, kind, payload))


@pytest.mark.host
def test_pods_reach_each_other_and_the_node_by_ipv6(bridge: Bridge) -> None:
    bridge.victim.serve(VICTIM6, 80)
    bridge.node.serve(GATEWAY6, 80)
    assert bridge.hostile.reaches(VICTIM6, 80)
    assert bridge.hostile.reaches(GATEWAY6, 80)
    bridge.hostile.run("busybox", "ping6", "-c", "1", "-s", "3000", "-W", "5", VICTIM6)


@pytest.mark.host
def test_neighbour_discovery_speaks_for_the_pod_alone(bridge: Bridge) -> None:
    own, link = bridge.own, pod_filter.link_local(bridge.own)
    theirs = bridge.victim.mac("eth0")
    asking, telling = link_option(1, own), link_option(2, own)
    for source in (HOSTILE6, link):
        assert bridge.discovers(ip6(source, neighbour(SOLICITATION, VICTIM6, asking)))
        assert bridge.discovers(ip6(source, neighbour(SOLICITATION, VICTIM6)))
        assert bridge.discovers(ip6(source, neighbour(ADVERTISEMENT, HOSTILE6, telling)))
        assert bridge.discovers(ip6(source, neighbour(ADVERTISEMENT, link)))
    probe = neighbour(SOLICITATION, HOSTILE6)
    assert bridge.discovers(ip6("::", probe))
    assert bridge.discovers(ip6("::", probe + b"\x0e\x01nonce!"))

    for target in (GATEWAY6, VICTIM6, "fe80::1"):
        assert not bridge.discovers(ip6(HOSTILE6, neighbour(ADVERTISEMENT, target, telling)))
        assert not bridge.discovers(ip6("::", neighbour(SOLICITATION, target)))
        for message in (
            neighbour(SOLICITATION, VICTIM6, asking),
            neighbour(ADVERTISEMENT, HOSTILE6, telling),
        ):
            assert not bridge.discovers(ip6(target, message))
    for wrong in (link_option(1, theirs), link_option(2, own), asking + asking, asking + telling):
        assert not bridge.discovers(ip6(HOSTILE6, neighbour(SOLICITATION, VICTIM6, wrong)))
    for wrong in (link_option(2, theirs), telling + link_option(2, theirs)):
        assert not bridge.discovers(ip6(HOSTILE6, neighbour(ADVERTISEMENT, HOSTILE6, wrong)))
    assert not bridge.discovers(ip6("::", probe + asking))
    assert not bridge.discovers(ip6(HOSTILE6, neighbour(ADVERTISEMENT, HOSTILE6), hops=254))


@pytest.mark.host
def test_packets_of_ipv6_carry_the_pods_own_address_and_card(bridge: Bridge) -> None:
    message = udp6((5000, 5000))
    assert bridge.sends(message, UDP)
    link = pod_filter.link_local(bridge.own)
    for source in (VICTIM6, GATEWAY6, "fd6b::b", "2001:db8::1", "::", "::1", "::ffff:10.64.1.66", link):
        assert not bridge.sends(message, UDP, source), source
        assert not bridge.sends(icmp6(128), source=source), source
    for card in (bridge.victim.mac("eth0"), "02:00:00:00:00:99"):
        assert not bridge.discovers(ip6(HOSTILE6, message, header=UDP), card), card


@pytest.mark.host
def test_a_pod_is_no_router_and_serves_no_addresses(bridge: Bridge) -> None:
    """By ICMPv6: router solicitations and advertisements, redirects, queries and reports of multicast."""
    assert bridge.sends(icmp6(128))
    for kind in (130, 131, 132, 133, 134, 137, 139, 143, 148, 149, 151, 153):
        for source in (HOSTILE6, pod_filter.link_local(bridge.own)):
            assert not bridge.sends(icmp6(kind), source=source), kind
    assert not bridge.sends(udp6((547, 546)), UDP)


@pytest.mark.host
def test_nothing_hides_behind_a_fragment(bridge: Bridge) -> None:
    """Node and neighbour put packets together, so what is hidden from the filter would still be read."""
    message = neighbour(ADVERTISEMENT, VICTIM6, link_option(2, bridge.own))
    options = bytes([ICMP6, 0, 1, 4, 0, 0, 0, 0])
    assert bridge.sends(fragment(ICMP6, icmp6(128, SENT[:8])), FRAGMENT)
    assert bridge.sends(fragment(ICMP6, SENT, offset=8, more=False), FRAGMENT)
    for hidden in (
        fragment(ICMP6, message, more=False),
        fragment(ICMP6, message[:8]),
        fragment(DESTINATION_OPTIONS, options),
        fragment(DESTINATION_OPTIONS, options[:2] + b"\1\4\0\0\0\0"),
        fragment(DESTINATION_OPTIONS, bytes([UDP]) + options[1:]),
        fragment(UDP, udp6((547, 546))),
    ):
        assert not bridge.sends(hidden, FRAGMENT), hidden
        # Behind the end of the packet stands what would let it through.
        for trailer in (icmp6(128), udp6((5000, 5000))):
            sent = ip6(HOSTILE6, hidden, header=FRAGMENT)
            assert not bridge.discovers(sent, trailer=trailer), (hidden, trailer)
    behind = bytes([FRAGMENT]) + options[1:] + fragment(UDP, udp6((5000, 5000)))
    assert not bridge.sends(behind, DESTINATION_OPTIONS)
    assert not bridge.sends(options + message, DESTINATION_OPTIONS)


@pytest.mark.host
def test_a_pod_without_an_ipv6_address_sends_none(bridge: Bridge) -> None:
    bridge.node.nft(pod_filter.ruleset(pod_filter.PodLink("veth1", bridge.own, (HOSTILE,))))
    assert not bridge.sends(udp6((5000, 5000)), UDP)
    assert not bridge.discovers(ip6(HOSTILE6, neighbour(ADVERTISEMENT, HOSTILE6)))
    assert bridge.arrives(frame(bridge.own, ARP, arp(bridge.own, HOSTILE)))


@pytest.mark.host
def test_the_bridge_never_learns_a_neighbours_mac_from_a_pod(bridge: Bridge) -> None:
    stolen = bridge.victim.mac("eth0")
    for target in ("01:80:c2:00:00:0e", "01:80:c2:00:00:00", BROADCAST):
        bridge.mouth.send(frame(stolen, 0x88CC, b"x" * 46, target))
    learnt = bridge.node.run("bridge", "fdb", "show", "br", "cni0").splitlines()
    assert not any(line.startswith(stolen) and "veth1" in line for line in learnt)


@pytest.mark.host
def test_filters_are_replaced_by_the_same_and_removed(bridge: Bridge) -> None:
    link = pod_filter.PodLink("veth1", bridge.own, (HOSTILE, HOSTILE6))
    before = bridge.node.run("nft", "list", "ruleset")
    bridge.node.nft(pod_filter.ruleset(link))
    assert bridge.node.run("nft", "list", "ruleset") == before
    bridge.node.nft(pod_filter.removal(["veth1"]))
    assert "chain veth1" not in bridge.node.run("nft", "list", "ruleset")
