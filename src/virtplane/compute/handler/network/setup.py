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

from virtplane.compute.handler.network import bridge, links
from virtplane.compute.handler.network.bridge import SetLink
from virtplane.compute.handler.network.netlink import Netlink
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
    with Netlink() as kernel:
        return bridge.pod_interface(links.look(kernel), names)


def apply(plan: Plan) -> None:
    """Apply the plan. Runs inside the namespace. Raises NetworkSetupError."""
    try:
        if isinstance(plan, MasqueradePlan):
            _apply_masquerade(plan)
        else:
            _apply_bridge(plan)
        _switch_off_checksum_offload(plan.names.bridge)
    except (OSError, bridge.CardGone) as error:
        raise NetworkSetupError(f"preparing {plan.names.bridge} failed: {error}") from error


def remove(names: LinkNames) -> None:
    """Give the pod its interface back. Runs inside the namespace. Raises NetworkSetupError."""
    try:
        with Netlink() as kernel:
            for step in bridge.removal(links.look(kernel), names):
                links.take(kernel, step)
    except OSError as error:
        raise NetworkSetupError(f"removing {names.bridge} failed: {error}") from error


def _apply_masquerade(plan: MasqueradePlan) -> None:
    _set_sysctls(_MASQUERADE_SYSCTLS | (_IPV6_SYSCTLS if plan.ipv6 is not None else {}))
    with Netlink() as kernel:
        _ensure_bridge(kernel, plan)
        _ensure_tap(kernel, plan)
    _load_rules(ruleset(plan))


def _apply_bridge(plan: BridgePlan) -> None:
    _set_sysctls(_BRIDGE_SYSCTLS)
    with Netlink() as kernel:
        for step in bridge.steps(links.look(kernel), plan):
            links.take(kernel, step)
        left = bridge.steps(links.look(kernel), plan)
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


def _ensure_bridge(kernel: Netlink, plan: MasqueradePlan) -> None:
    if not links.exists(kernel, PRIMARY.bridge):
        links.add_link(kernel, PRIMARY.bridge, "bridge", MASQUERADE_MAC, plan.mtu)
    gateways: list[links.Interface] = [plan.gateway]
    if plan.ipv6 is not None:
        gateways.append(plan.ipv6.gateway)
    for gateway in gateways:
        if not links.has_address(kernel, PRIMARY.bridge, gateway):
            links.add_address(kernel, PRIMARY.bridge, gateway)
    links.take(kernel, SetLink(PRIMARY.bridge, is_up=True))


def _ensure_tap(kernel: Netlink, plan: MasqueradePlan) -> None:
    if not links.exists(kernel, PRIMARY.tap):
        links.add_tap(PRIMARY.tap, plan.queues)
    links.take(kernel, SetLink(PRIMARY.tap, mtu=plan.mtu, master=PRIMARY.bridge, is_up=True))


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
