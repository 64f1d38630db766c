"""Reading and changing the links of the caller's network namespace."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.handler.network.bridge import (
    AddAddress,
    AddLink,
    AddRoute,
    DeleteLink,
    Link,
    NetworkState,
    RemoveAddress,
    SetLink,
    Step,
)
from virtplane.compute.handler.network.plan import PodInterface, Route

_HOLDER_KINDS = ("dummy", "bridge")
"""A dummy link is made to be connected to nothing, but not every kernel has it; a bridge without ports is as
good, and without bridges no guest could be bridged."""

_TAP_FLAGS = ("no_pi", "one_queue", "vnet_hdr", "tun_excl", "multi_queue", "persist", "nofilter")
_MAIN_TABLE = 254
_UNICAST = 1
_BY_KERNEL = 2
_ON_LINK = 4
_IS_UP = 1
_EVERYWHERE = "0.0.0.0/0"


def look(route: IPRoute) -> NetworkState:
    """Read the current state."""
    addresses: dict[int, list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]] = {}
    for item in route.get_addr(scope=0):
        # For a point-to-point link, IFA_ADDRESS is the address of the peer.
        text = item.get_attr("IFA_LOCAL") or item.get_attr("IFA_ADDRESS")
        addresses.setdefault(item["index"], []).append(ipaddress.ip_interface(f"{text}/{item['prefixlen']}"))
    routes: dict[int, list[Route]] = {}
    for item in route.get_routes(family=socket.AF_INET, table=_MAIN_TABLE):
        if item["type"] == _UNICAST and item["proto"] != _BY_KERNEL and item.get_attr("RTA_OIF"):
            routes.setdefault(item.get_attr("RTA_OIF"), []).append(_route(item))
    messages = list(route.get_links())
    names = {message["index"]: message.get_attr("IFLA_IFNAME") for message in messages}
    links = {}
    for message in messages:
        index = message["index"]
        interface = PodInterface(
            message.get_attr("IFLA_ADDRESS") or "",
            message.get_attr("IFLA_MTU"),
            tuple(addresses.get(index, ())),
            tuple(routes.get(index, ())),
        )
        links[names[index]] = Link(
            names[index],
            interface,
            bool(message["flags"] & _IS_UP),
            message.get_attr("IFLA_IFALIAS") or "",
            names.get(message.get_attr("IFLA_MASTER"), ""),
            _learns(message),
        )
    return NetworkState(links)


def _route(item: Any) -> Route:
    destination = item.get_attr("RTA_DST")
    network = f"{destination}/{item['dst_len']}" if destination else _EVERYWHERE
    gateway = item.get_attr("RTA_GATEWAY")
    return Route(ipaddress.IPv4Network(network), ipaddress.IPv4Address(gateway) if gateway else None)


def _learns(message: Any) -> bool:
    port = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA")
    learning = port.get_attr("IFLA_BRPORT_LEARNING") if port is not None else None
    return bool(learning) if learning is not None else True


def take(route: IPRoute, step: Step) -> None:
    """Carry out one step. Raises NetlinkError and OSError."""
    match step:
        case AddLink():
            _add(route, step)
        case SetLink():
            _set(route, step)
        case DeleteLink(name):
            route.link("del", index=_index(route, name))
        case AddAddress(name, address):
            _address(route, "add", name, address)
        case RemoveAddress(name, address):
            try:
                _address(route, "del", name, address)
            except NetlinkError as error:
                # The kernel removes secondary addresses together with the primary one of their subnet.
                if error.code != errno.EADDRNOTAVAIL:
                    raise
        case AddRoute(name, wanted):
            _append_route(route, name, wanted)


def _index(route: IPRoute, name: str) -> int:
    found: list[int] = route.link_lookup(ifname=name)
    if not found:
        raise OSError(errno.ENODEV, f"there is no link {name}")
    return found[0]


def _add(route: IPRoute, step: AddLink) -> None:
    if step.kind == "tap":
        add_tap(route, step.name, step.queues)
        return
    kinds = _HOLDER_KINDS if step.kind == "holder" else (step.kind,)
    for kind in kinds:
        try:
            route.link("add", ifname=step.name, kind=kind, address=step.mac, mtu=step.mtu)
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP or kind == kinds[-1]:
                raise
        else:
            return


def add_tap(route: IPRoute, name: str, queues: int) -> None:
    """Make a tap that QEMU may open, once for each of its `queues`. Raises NetlinkError and OSError."""
    several = {"ifr": {**dict.fromkeys(_TAP_FLAGS, 0), "multi_queue": 1}} if queues > 1 else {}
    route.link("add", ifname=name, kind="tuntap", mode="tap", uid=QEMU_USER, gid=QEMU_USER, **several)


def _set(route: IPRoute, step: SetLink) -> None:
    index = _index(route, step.name)
    changes: dict[str, object] = {
        "ifname": step.rename,
        "state": None if step.is_up is None else ("up" if step.is_up else "down"),
        "address": step.mac,
        "mtu": step.mtu,
        "master": None if step.master is None else _index(route, step.master),
        "ifalias": step.alias,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    if given:
        route.link("set", index=index, **given)
    if step.learning is not None:
        route.brport("set", index=index, learning=int(step.learning))


def _address(route: IPRoute, command: str, name: str, text: str) -> None:
    address = ipaddress.ip_interface(text)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    index = _index(route, name)
    prefix = address.network.prefixlen
    route.addr(command, index=index, address=str(address.ip), prefixlen=prefix, family=family)


def _append_route(route: IPRoute, name: str, wanted: Route) -> None:
    settings: dict[str, object] = {"dst": str(wanted.destination), "oif": _index(route, name)}
    if wanted.gateway is not None:
        settings |= {"gateway": str(wanted.gateway), "flags": _ON_LINK}
    else:
        settings["scope"] = "link"
    route.route("append", **settings)
