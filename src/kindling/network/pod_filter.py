"""The anti-spoofing filter of a pod's or node's link: only its own addresses, from its own MAC; pure.

The rules hang on the node's end of the link, before the bridge sees a frame: a bridge learns senders even
from frames that its own hooks never get (802.1D's reserved addresses), so later would be too late. What the
pod does to its end changes nothing. It holds for guests as well: with the bridge binding they have the pod's
MAC and address, with masquerade they hide behind them.

Pods have IPv4 alone. Frames of every other kind are dropped, router advertisements among them, by which a
neighbour could make itself everybody's router (CVE-2020-10749).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

BRIDGE = "cni0"
"""The bridge that the CNI configuration of every node names."""
TABLE = "kindling-pods"
FAMILY = "netdev"
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_FIRST = -500
_NO_ADDRESS = "0.0.0.0"
"""The sender of an ARP probe, by which a host asks whether its address is free (RFC 5227)."""


@dataclass(frozen=True, slots=True)
class PodLink:
    """A link: its name on the filtering side, and the MAC and addresses that the other side was given.

    `routed` are networks that the other side sends packets of, as a node does for its pods.
    """

    name: str
    mac: str
    addresses: tuple[str, ...]
    routed: tuple[str, ...] = ()


def pod_link(result: Any) -> PodLink | None:
    """The link in a CNI result as the runtime shows it; None without one, as with hostNetwork.

    Raises ValueError for a result that cannot be understood.
    """
    interfaces = (result or {}).get("Interfaces") or {}
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
    return PodLink(outer[0], mac, tuple(str(address) for address in addresses if address.version == 4))


def ruleset(link: PodLink, table: str = TABLE) -> str:
    """The commands that put the filter on `link`, or replace it by the same."""
    senders = ", ".join((_NO_ADDRESS, *link.addresses))
    own = ", ".join((*link.addresses, *link.routed))
    arp = f"arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp saddr ether {link.mac}"
    hook = f'type filter hook ingress device "{link.name}" priority {_FIRST}; policy drop;'
    return f"""add table {FAMILY} {table}
add chain {FAMILY} {table} {link.name} {{ {hook} }}
flush chain {FAMILY} {table} {link.name}
table {FAMILY} {table} {{
    chain {link.name} {{
        ether saddr != {link.mac} drop
        {arp} arp saddr ip {{ {senders} }} accept
        udp sport 67 udp dport 68 drop
        ip saddr {{ {own} }} accept
    }}
}}
"""


def removal(links: Iterable[str]) -> str:
    """The commands that remove the filters of deleted links."""
    chains = [f"chain {FAMILY} {TABLE} {name}" for name in links]
    return "".join(f"flush {chain}\ndelete {chain}\n" for chain in chains)
