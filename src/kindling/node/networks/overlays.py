"""Networks of layer 2 that span all nodes, defined as for OVN-Kubernetes: one Ethernet, whatever the node.

A node has a bridge for each such network that its pods are on, and a tunnel between the bridges of all nodes:
VXLAN with a multicast group, since the nodes share one link. So nobody has to know which other nodes there
are, and the kernel learns which node a MAC is on. What arrives in a tunnel must come from a node: pods have
other addresses, which filters hold them to.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kindling.network import nftables
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.selection import NetworkSelection
from kindling.node.programs import run_program
from kubecore import json
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str

KIND = "ovn-k8s-cni-overlay"
"""The type of the CNI plugin of OVN-Kubernetes."""
TABLE = "kindling-overlays"
_UPLINK = "eth0"
_GROUP = "239.192.75.1"
"""Of the range for an organization's own use (RFC 2365)."""
_PORT = 4789
_OVERHEAD = 50
"""Bytes of a packet around a frame, whose own Ethernet header counts too."""
_MTU = range(68, 65536)
_LOOK_SECONDS = 20.0
_BRIDGE = re.compile(r"ovn[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Overlay:
    """A network, which is the same one wherever a definition has its name, in any namespace."""

    name: str
    mtu: int = 0
    """What the definition says; 0 for what the link between the nodes has room for."""

    @property
    def bridge(self) -> str:
        """The link of a node that its pods are on."""
        return f"ovn{self._digest[:12]}"

    @property
    def tunnel(self) -> str:
        """The port of the bridge that leads to the other nodes."""
        return tunnel_of(self.bridge)

    @property
    def number(self) -> int:
        """The VXLAN network identifier: 24 bits."""
        return int(self._digest[:6], 16) or 1

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    def plugin(self, mtu: int = 0) -> JsonObject:
        """The configuration of the plugin that puts a pod on the bridge, with links of this size."""
        return {"type": "bridge", "bridge": self.bridge, "mtu": mtu or self.mtu, "ipam": {}}


def tunnel_of(bridge: str) -> str:
    """The tunnel that is a port of this bridge."""
    return f"ovt{bridge.removeprefix('ovn')}"


def read(plugin: Mapping[str, Any], name: str, wanted: NetworkSelection) -> Overlay:
    """The network of the definition that is asked for, by its plugin's part (pure). Raises NetworkProblem."""
    where, topology = f'plugin type="{KIND}"', get_str(plugin, "topology")
    if topology != "layer2":
        raise NetworkProblem(
            f'{where}: topology "{topology[:64]}" is not one that this node has, which is without Open '
            "vSwitch: layer2 is, and the plugin bridge on links of the node is in place of localnet"
        )
    if get_str(plugin, "role") not in ("", "secondary"):
        raise NetworkProblem(f"{where}: role: pods have the cluster's network as their primary one")
    if get_str(plugin, "subnets"):
        raise NetworkProblem(
            f"{where}: subnets: this node gives no addresses there; leave subnets out and give pods theirs"
        )
    own, said = f"{wanted.namespace}/{wanted.name}", get_str(plugin, "netAttachDefName")
    if said != own:
        raise NetworkProblem(
            f'{where}: netAttachDefName "{said[:256]}" is not that of the definition, "{own}"'
        )
    mtu = get_int(plugin, "mtu")
    if mtu and mtu not in _MTU:
        raise NetworkProblem(f"{where}: mtu {mtu} is not between {_MTU.start} and {_MTU.stop - 1}")
    return Overlay(name, mtu)


class Overlays:
    """The bridges and tunnels of one node."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._is_filtered = False
        self._is_clean = False
        """Whether there is certainly nothing to remove, so that most nodes never look."""

    async def mtu(self, overlay: Overlay) -> int:
        """The size of packets that pods on the network may send. Raises NetworkProblem, OSError."""
        if overlay.mtu:
            return overlay.mtu
        [uplink] = await _links("dev", _UPLINK)
        return get_int(uplink, "mtu") - _OVERHEAD

    async def prepare(self, overlay: Overlay) -> None:
        """Have the network on this node; whoever calls is on record as its user. Raises NetworkProblem,
        OSError.
        """
        async with self._lock:
            self._is_clean = False
            if not self._is_filtered:
                await self._filter()
            there = {get_str(link, "ifname"): link for link in await _links()}
            is_up = "UP" in get_list(there.get(overlay.bridge), "flags")
            if not is_up or get_str(there.get(overlay.tunnel), "master") != overlay.bridge:
                for command in commands(overlay, there):
                    await _ip(*command.split())

    async def sweep(self, used: Callable[[], Collection[str]]) -> None:
        """Remove the networks whose bridges are not among those that are `used`. Raises NetworkProblem,
        OSError.
        """
        async with self._lock:
            if self._is_clean:
                return
            there = {get_str(link, "ifname") for link in await _links()}
            found = {name for name in there if _BRIDGE.fullmatch(name)}
            for name in sorted(found):
                if name not in used():
                    for link in (tunnel_of(name), name):
                        if link in there:
                            await _ip("link", "del", "dev", link)
            self._is_clean = not found

    async def _filter(self) -> None:
        try:
            await nftables.load(ruleset(await _nodes()))
        except nftables.RulesRefused as error:
            raise NetworkProblem(f"guarding the tunnels between nodes: {error}") from error
        self._is_filtered = True


def ruleset(nodes: str) -> str:
    """The commands that let nobody but nodes, in the network `nodes`, send into tunnels (pure)."""
    return f"""add table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain input {{
        type filter hook input priority -300; policy accept;
        iifname != "{_UPLINK}" udp dport {_PORT} drop
        ip saddr != {nodes} udp dport {_PORT} drop
        meta nfproto ipv6 udp dport {_PORT} drop
    }}
}}
"""


def commands(overlay: Overlay, there: Collection[str]) -> list[str]:
    """What ip is told to make of the network what is not `there`, and what an earlier agent may not have come
    to (pure). The bridge is up last, when all is done.

    The node itself has no address on the network, not even one of IPv6 that the kernel invents.
    """
    bridge, tunnel = overlay.bridge, overlay.tunnel
    size = f"mtu {overlay.mtu} " if overlay.mtu else ""
    vxlan = f"vxlan id {overlay.number} group {_GROUP} dev {_UPLINK} dstport {_PORT}"
    making = {
        bridge: f"link add dev {bridge} type bridge",
        tunnel: f"link add dev {tunnel} {size}type {vxlan}",
    }
    return [
        *(command for name, command in making.items() if name not in there),
        f"link set dev {bridge} addrgenmode none",
        f"link set dev {tunnel} addrgenmode none",
        f"link set dev {tunnel} master {bridge}",
        f"link set dev {tunnel} up",
        f"link set dev {bridge} up",
    ]


async def _nodes() -> str:
    """The network on the link that the nodes share. Raises NetworkProblem, OSError."""
    shown = await _ip("-j", "-4", "addr", "show", "dev", _UPLINK)
    for link in json.decode(shown.encode()):
        for each in get_list(link, "addr_info"):
            address = f"{get_str(each, 'local')}/{get_int(each, 'prefixlen')}"
            return str(ipaddress.ip_interface(address).network)
    raise NetworkProblem(f"{_UPLINK} has no IPv4 address, from which tunnels to other nodes start")


async def _links(*selected: str) -> list[JsonObject]:
    """The links of the node. Raises NetworkProblem, OSError."""
    shown = await _ip("-j", "link", "show", *selected)
    return [get_object({"link": link}, "link") for link in json.decode(shown.encode())]


async def _ip(*arguments: str) -> str:
    """What ip shows. Raises NetworkProblem, OSError."""
    code, shown, problem = await run_program("ip", *arguments, seconds=_LOOK_SECONDS)
    if code != 0:
        raise NetworkProblem(f"ip {' '.join(arguments)}: {problem}")
    return shown
