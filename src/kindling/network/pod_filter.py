"""The anti-spoofing filter of a pod's or node's link: only its own addresses, from its own MAC; pure.

The rules hang on the node's end of the link, before the bridge sees a frame: a bridge learns senders even
from frames that its own hooks never get (802.1D's reserved addresses), so later would be too late. What the
pod does to its end changes nothing. It holds for guests as well: with the bridge binding they have the pod's
MAC and address, with masquerade they hide behind them.

Frames of every kind that is not listed are dropped. Neighbour discovery, IPv6's ARP, speaks for the pod's
own addresses and MAC alone, from them or from the link-local address that follows from the MAC; nothing else
is sent from that one. Of ICMPv6, pods send echoes and errors: no router advertisements, by which a neighbour
could make itself everybody's router (CVE-2020-10749), no redirects, no multicast queries. What is allowed is
listed, so that a header that cannot be found does not pass for another one (RFC 7112). Pods without an IPv6
address send no IPv6 at all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kubecore.json import JsonObject

BRIDGE = "cni0"
"""The bridge that the CNI configuration of every node names."""
TABLE = "kindling-pods"
FAMILY = "netdev"
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_FIRST = -500
_NO_ADDRESS = "0.0.0.0"
"""The sender of an ARP probe, by which a host asks whether its address is free (RFC 5227)."""
_ECHOES_AND_ERRORS = (
    "{ destination-unreachable, packet-too-big, time-exceeded, parameter-problem, echo-request, echo-reply }"
)
_TAGS = "{ 8021q, 8021ad }"
"""Of VLANs. The network card takes them off, so that the other rules see what is in the frame."""
_WHOLE = "{ icmpv6, tcp, udp, udplite, sctp, dccp }"
"""What is cut into fragments: of these, the first fragment has what the rules look at. A fragment of options
has not, and bytes behind the packet's end would stand in for it."""
_DHCPV6_CLIENT = 546
_BARE, _WITH_OPTION = 24, 32
"""Bytes of a neighbour solicitation or advertisement (RFC 4861, 4.3), alone and with one option of eight."""
_TARGET, _OPTION, _OPTION_MAC = "@th,64,128", "@th,192,16", "@th,208,48"
_SOURCE_OPTION, _TARGET_OPTION, _NONCE_OPTION = "0x0101", "0x0201", "0x0e01"
"""Kind and length of an option: the sender's MAC, the target's, a nonce (RFC 7527)."""


@dataclass(frozen=True, slots=True)
class PodLink:
    """A link: its name on the filtering side, and the MAC and addresses that the other side was given.

    `routed` are networks that the other side sends packets of, as a node does for its pods.
    """

    name: str
    mac: str
    addresses: tuple[str, ...]
    routed: tuple[str, ...] = ()


def pod_link(result: JsonObject) -> PodLink | None:
    """The link in a CNI result as the runtime shows it; None without one, as with hostNetwork.

    Raises ValueError for a result that cannot be understood.
    """
    interfaces = result.get("Interfaces") or {}
    outer = [
        name for name, item in interfaces.items() if not item.get("Sandbox") and name not in (BRIDGE, "lo")
    ]
    inner = [item for item in interfaces.values() if item.get("Sandbox") and item.get("IPConfigs")]
    inner = [item for item in inner if item.get("Mac") not in (None, "", "00:00:00:00:00:00")]
    if not outer and not inner:
        return None
    if len(outer) != 1 or len(inner) != 1:
        raise ValueError(f"a pod has one link, not {sorted(interfaces)}")
    mac = str(inner[0]["Mac"]).lower()
    if not _MAC.fullmatch(mac):
        raise ValueError(f"{mac!r} is not a MAC address")
    addresses = [ipaddress.ip_address(item["IP"]) for item in inner[0]["IPConfigs"]]
    return PodLink(outer[0], mac, tuple(map(str, addresses)))


def ruleset(link: PodLink, table: str = TABLE) -> str:
    """The commands that put the filter on `link`, or replace it by the same."""
    rules = [f"ether saddr != {link.mac} drop", f"ether type {_TAGS} drop", *_ipv4(link), *_ipv6(link)]
    hook = f'type filter hook ingress device "{link.name}" priority {_FIRST}; policy drop;'
    lines = "".join(f"        {rule}\n" for rule in rules)
    return f"""add table {FAMILY} {table}
add chain {FAMILY} {table} {link.name} {{ {hook} }}
flush chain {FAMILY} {table} {link.name}
table {FAMILY} {table} {{
    chain {link.name} {{
{lines}    }}
}}
"""


def _ipv4(link: PodLink) -> list[str]:
    senders, routed = _of(4, link.addresses), _of(4, link.routed)
    if not senders:
        return []
    arp = f"arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp saddr ether {link.mac}"
    return [
        f"{arp} arp saddr ip {_set(_NO_ADDRESS, *senders)} accept",
        "udp sport 67 udp dport 68 drop",
        f"ip saddr {_set(*senders, *routed)} accept",
    ]


def _ipv6(link: PodLink) -> list[str]:
    senders, routed = _of(6, link.addresses), _of(6, link.routed)
    if not senders:
        return []
    neighbour, own = _set(*senders, link_local(link.mac)), _set(*senders, *routed)
    alone = "ip6 nexthdr icmpv6 ip6 hoplimit 255 icmpv6 type"
    asking = f"{alone} nd-neighbor-solicit"
    # As numbers: nft does not know that these bits are an address.
    target = (
        f"{_TARGET} {_set(*(hex(int(ipaddress.ip_address(a))) for a in (*senders, link_local(link.mac))))}"
    )
    telling = f"{alone} nd-neighbor-advert ip6 saddr {neighbour} {target}"
    mac = f"0x{link.mac.replace(':', '')}"
    return [
        "ip6 nexthdr != ipv6-frag exthdr frag exists drop",
        f"frag nexthdr != {_WHOLE} drop",
        f"{asking} ip6 saddr {neighbour} ip6 length {_BARE} accept",
        f"{asking} ip6 saddr {neighbour} {_option(_SOURCE_OPTION)} {_OPTION_MAC} {mac} accept",
        # Duplicate address detection.
        f"{asking} ip6 saddr :: {target} ip6 length {_BARE} accept",
        f"{asking} ip6 saddr :: {target} {_option(_NONCE_OPTION)} accept",
        f"{telling} ip6 length {_BARE} accept",
        f"{telling} {_option(_TARGET_OPTION)} {_OPTION_MAC} {mac} accept",
        f"ip6 saddr {own} meta l4proto != {{ icmpv6, udp }} accept",
        # Nobody here is served by DHCPv6, and a match needs the header to be there.
        f"ip6 saddr {own} udp dport != {_DHCPV6_CLIENT} accept",
        f"ip6 saddr {own} icmpv6 type {_ECHOES_AND_ERRORS} accept",
        # The rest of a packet whose beginning was judged by the rules above.
        f"ip6 saddr {own} frag frag-off != 0 accept",
    ]


def link_local(mac: str) -> str:
    """The address that a link with this MAC gives itself (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    interface = bytes([octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + interface))


def _option(kind: str) -> str:
    return f"ip6 length {_WITH_OPTION} {_OPTION} {kind}"


def _of(version: int, texts: Iterable[str]) -> list[str]:
    return [text for text in texts if ipaddress.ip_network(text).version == version]


def _set(*elements: str) -> str:
    return f"{{ {', '.join(elements)} }}"


def removal(links: Iterable[str]) -> str:
    """The commands that remove the filters of deleted links."""
    chains = [f"chain {FAMILY} {TABLE} {name}" for name in links]
    return "".join(f"flush {chain}\ndelete {chain}\n" for chain in chains)
