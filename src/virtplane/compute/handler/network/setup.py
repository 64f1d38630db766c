"""Apply a plan inside the pod's network namespace. Every step may be repeated."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
from ctypes import addressof, create_string_buffer
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from virtplane.compute.handler.network import bridge, links
from virtplane.compute.handler.network.plan import (
    MASQUERADE_MAC,
    BridgePlan,
    MasqueradePlan,
    Plan,
    PodInterface,
)
from virtplane.compute.handler.network.rules import ruleset
from virtplane.compute.podlinks import PRIMARY, LinkNames

# Lets the launcher serve DHCP without privileges.
_DHCP_SYSCTLS = {"net/ipv4/ip_unprivileged_port_start": "0"}
_MASQUERADE_SYSCTLS = _DHCP_SYSCTLS | {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/route_localnet": "1",
}
_IPV6_SYSCTLS = {
    "net/ipv6/conf/all/forwarding": "1",
    # Nobody else has the gateway's address, and the guest need not wait until that is sure.
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
}
# The pod has the same address as its guest: only the guest may answer ARP requests for it.
_BRIDGE_SYSCTLS = _DHCP_SYSCTLS | {"net/ipv4/conf/all/arp_ignore": "1"}
_SIOCETHTOOL = 0x8946
_ETHTOOL_STXCSUM = 0x00000017


class NetworkSetupError(Exception):
    """The pod's network could not be prepared; the guest cannot run in this pod."""


def read_pod_interface(names: LinkNames = PRIMARY) -> PodInterface | None:
    """The pod's own interface; None in a pod without one. Runs inside the namespace."""
    with IPRoute() as route:
        return bridge.pod_interface(links.look(route), names)


def apply(plan: Plan) -> None:
    """Apply the plan. Runs inside the namespace. Raises NetworkSetupError."""
    try:
        if isinstance(plan, MasqueradePlan):
            _apply_masquerade(plan)
        else:
            _apply_bridge(plan)
        _switch_off_checksum_offload(plan.names.bridge)
    except (OSError, NetlinkError, bridge.CardGone) as error:
        raise NetworkSetupError(f"preparing {plan.names.bridge} failed: {error}") from error


def remove(names: LinkNames) -> None:
    """Give the pod its interface back. Runs inside the namespace. Raises NetworkSetupError."""
    try:
        with IPRoute() as route:
            for step in bridge.removal(links.look(route), names):
                links.take(route, step)
    except (OSError, NetlinkError) as error:
        raise NetworkSetupError(f"removing {names.bridge} failed: {error}") from error


def _apply_masquerade(plan: MasqueradePlan) -> None:
    _set_sysctls(_MASQUERADE_SYSCTLS | (_IPV6_SYSCTLS if plan.ipv6 is not None else {}))
    with IPRoute() as route:
        index = _ensure_bridge(route, plan)
        _ensure_tap(route, plan, index)
    _load_rules(ruleset(plan))


def _apply_bridge(plan: BridgePlan) -> None:
    _set_sysctls(_BRIDGE_SYSCTLS)
    with IPRoute() as route:
        for step in bridge.steps(links.look(route), plan):
            links.take(route, step)
        left = bridge.steps(links.look(route), plan)
    if left:
        raise NetworkSetupError(
            f"preparing {plan.names.bridge} had no lasting effect, because this step is still needed:"
            f" {left[0]}"
        )
    # The pod itself is not on a network that its guest is on: no address, no solicitation of its own.
    for name in (plan.names.bridge, plan.names.card, plan.names.tap):
        setting = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
        if setting.exists():
            setting.write_text("1")


def _set_sysctls(values: dict[str, str]) -> None:
    for name, value in values.items():
        Path("/proc/sys", name).write_text(value)


def _index(route: IPRoute, name: str) -> int | None:
    found: list[int] = route.link_lookup(ifname=name)
    return found[0] if found else None


def _ensure_bridge(route: IPRoute, plan: MasqueradePlan) -> int:
    index = _index(route, PRIMARY.bridge)
    if index is None:
        route.link("add", ifname=PRIMARY.bridge, kind="bridge", address=MASQUERADE_MAC, mtu=plan.mtu)
        index = _index(route, PRIMARY.bridge)
        assert index is not None
    gateways = [(socket.AF_INET, str(plan.gateway.ip), plan.gateway.network.prefixlen)]
    if plan.ipv6 is not None:
        gateway = plan.ipv6.gateway
        gateways.append((socket.AF_INET6, str(gateway.ip), gateway.network.prefixlen))
    for family, address, prefix in gateways:
        if not route.get_addr(family=family, index=index, address=address):
            route.addr("add", family=family, index=index, address=address, prefixlen=prefix)
    route.link("set", index=index, state="up")
    return index


def _ensure_tap(route: IPRoute, plan: MasqueradePlan, bridge: int) -> None:
    index = _index(route, PRIMARY.tap)
    if index is None:
        links.add_tap(route, PRIMARY.tap, plan.queues)
        index = _index(route, PRIMARY.tap)
        assert index is not None
    route.link("set", index=index, mtu=plan.mtu, master=bridge, state="up")


def _switch_off_checksum_offload(interface: str) -> None:
    """DHCP clients in guests drop packets without a checksum, and no network card computes it here."""
    value = create_string_buffer(struct.pack("II", _ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", interface.encode(), addressof(value)).ljust(40, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, request)


def _load_rules(rules: dict[str, Any]) -> None:
    done = subprocess.run(
        ["nft", "-j", "-f", "-"], input=json.dumps(rules), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NetworkSetupError(f"nft refused the rules: {done.stderr.strip() or done.stdout.strip()}")
