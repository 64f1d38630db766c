"""Reading and changing the links of the caller's network namespace."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from typing import TypeAlias

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
from virtplane.compute.handler.network.netlink import (
    APPEND,
    CREATE,
    EXCLUSIVE,
    AddressHeader,
    LinkHeader,
    Netlink,
    RouteHeader,
    attributes,
    nested,
    packed,
)
from virtplane.compute.handler.network.plan import PodInterface, Route

Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_HOLDER_KINDS = ("dummy", "bridge")
"""A dummy link is made to be connected to nothing, but not every kernel has it; a bridge without ports is as
good, and without bridges no guest could be bridged."""

# Messages, attributes and values of linux/rtnetlink.h, if_link.h, if_addr.h and if_tun.h.
_NEW_LINK, _DELETE_LINK, _GET_LINK, _SET_LINK = 16, 17, 18, 19
_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS = 20, 21, 22
_NEW_ROUTE, _GET_ROUTE = 24, 26
_MAC, _NAME, _MTU, _MASTER, _OF_PORT, _KIND_INFO, _ALIAS = 1, 3, 4, 10, 12, 18, 20
_INFO_KIND, _INFO_OF_PORT = 1, 5
_PORT_LEARNING = 8
_ADDRESS, _LOCAL = 1, 2
_DESTINATION, _OUTPUT, _GATEWAY = 1, 4, 5
_MAIN_TABLE = 254
_UNICAST = 1
_BY_KERNEL, _STATIC = 2, 4
_UNIVERSE, _ON_THE_LINK = 0, 253
_ON_LINK = 4
_IS_UP = 1
_EVERYWHERE = "0.0.0.0/0"
_TUN_SET_INTERFACE, _TUN_SET_PERSISTENT = 0x400454CA, 0x400454CB
_TUN_SET_OWNER, _TUN_SET_GROUP = 0x400454CC, 0x400454CE
_TAP, _MULTI_QUEUE = 0x0002, 0x0100


def look(kernel: Netlink) -> NetworkState:
    """Read the current state."""
    addresses = _addresses(kernel)
    routes = _routes(kernel)
    messages = _links(kernel)
    names = {index: _text(found.get(_NAME, b"")) for index, (_, found) in messages.items()}
    links = {}
    for index, (header, found) in messages.items():
        interface = PodInterface(
            found.get(_MAC, b"").hex(":"),
            _number(found[_MTU]),
            tuple(addresses.get(index, ())),
            tuple(routes.get(index, ())),
        )
        links[names[index]] = Link(
            names[index],
            interface,
            bool(header.flags & _IS_UP),
            _text(found.get(_ALIAS, b"")),
            names.get(_number(found.get(_MASTER, bytes(4))), ""),
            _learns(found),
        )
    return NetworkState(links)


def _links(kernel: Netlink) -> dict[int, tuple[LinkHeader, dict[int, bytes]]]:
    found = {}
    for message in kernel.dump(_GET_LINK, LinkHeader().packed()):
        header = LinkHeader.of(message)
        found[header.index] = header, attributes(message[LinkHeader.layout.size :])
    return found


def _addresses(kernel: Netlink) -> dict[int, list[Interface]]:
    """The addresses of each link that are valid beyond it."""
    addresses: dict[int, list[Interface]] = {}
    for message in kernel.dump(_GET_ADDRESS, AddressHeader().packed()):
        header = AddressHeader.of(message)
        if header.scope == _UNIVERSE:
            found = attributes(message[AddressHeader.layout.size :])
            # For a point-to-point link, IFA_ADDRESS is the address of the peer.
            address = ipaddress.ip_address(found.get(_LOCAL) or found[_ADDRESS])
            interface = ipaddress.ip_interface(f"{address}/{header.prefix}")
            addresses.setdefault(header.index, []).append(interface)
    return addresses


def _routes(kernel: Netlink) -> dict[int, list[Route]]:
    """The routes over each link that somebody has made."""
    routes: dict[int, list[Route]] = {}
    for message in kernel.dump(_GET_ROUTE, RouteHeader().packed()):
        header = RouteHeader.of(message)
        found = attributes(message[RouteHeader.layout.size :])
        is_made = header.kind == _UNICAST and header.protocol != _BY_KERNEL and header.table == _MAIN_TABLE
        if is_made and _OUTPUT in found:
            routes.setdefault(_number(found[_OUTPUT]), []).append(_route(header, found))
    return routes


def _route(header: RouteHeader, found: Mapping[int, bytes]) -> Route:
    destination = found.get(_DESTINATION)
    network = f"{ipaddress.IPv4Address(destination)}/{header.prefix}" if destination else _EVERYWHERE
    gateway = found.get(_GATEWAY)
    return Route(ipaddress.IPv4Network(network), ipaddress.IPv4Address(gateway) if gateway else None)


def _learns(link: Mapping[int, bytes]) -> bool:
    port = attributes(attributes(link.get(_KIND_INFO, b"")).get(_INFO_OF_PORT, b""))
    learning = port.get(_PORT_LEARNING)
    return bool(learning[0]) if learning else True


def _number(value: bytes) -> int:
    found: int = struct.unpack("=I", value)[0]
    return found


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode()


def take(kernel: Netlink, step: Step) -> None:
    """Carry out one step. Raises OSError."""
    match step:
        case AddLink():
            _add(kernel, step)
        case SetLink():
            _set(kernel, step)
        case DeleteLink(name):
            kernel.change(_DELETE_LINK, LinkHeader(_index(kernel, name)).packed())
        case AddAddress(name, address):
            add_address(kernel, name, ipaddress.ip_interface(address))
        case RemoveAddress(name, address):
            try:
                _address(kernel, _DELETE_ADDRESS, name, ipaddress.ip_interface(address))
            except OSError as error:
                # The kernel removes secondary addresses together with the primary one of their subnet.
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
        case AddRoute(name, wanted):
            _append_route(kernel, name, wanted)


def exists(kernel: Netlink, name: str) -> bool:
    """Whether there is a link of that name."""
    return any(_text(found.get(_NAME, b"")) == name for _, found in _links(kernel).values())


def _index(kernel: Netlink, name: str) -> int:
    for index, (_, found) in _links(kernel).items():
        if _text(found.get(_NAME, b"")) == name:
            return index
    raise OSError(errno.ENODEV, f"there is no link {name}")


def _add(kernel: Netlink, step: AddLink) -> None:
    if step.kind == "tap":
        add_tap(step.name, step.queues)
        return
    kinds = _HOLDER_KINDS if step.kind == "holder" else (step.kind,)
    for kind in kinds:
        try:
            add_link(kernel, step.name, kind, step.mac, step.mtu)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP or kind == kinds[-1]:
                raise
        else:
            return


def add_link(kernel: Netlink, name: str, kind: str, mac: str | None, mtu: int | None) -> None:
    """Make a link. Raises OSError."""
    values = [(_NAME, name.encode() + b"\0"), nested(_KIND_INFO, [(_INFO_KIND, kind.encode())])]
    if mac:
        values.append((_MAC, _packed_mac(mac)))
    if mtu:
        values.append((_MTU, struct.pack("=I", mtu)))
    kernel.change(_NEW_LINK, LinkHeader().packed() + packed(values), CREATE | EXCLUSIVE)


def add_tap(name: str, queues: int) -> None:
    """Make a tap that QEMU may open, once for each of its `queues`. Raises OSError."""
    flags = _TAP | (_MULTI_QUEUE if queues > 1 else 0)
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(descriptor, _TUN_SET_INTERFACE, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(descriptor, _TUN_SET_OWNER, QEMU_USER)
        fcntl.ioctl(descriptor, _TUN_SET_GROUP, QEMU_USER)
        fcntl.ioctl(descriptor, _TUN_SET_PERSISTENT, 1)
    finally:
        os.close(descriptor)


def _set(kernel: Netlink, step: SetLink) -> None:
    index = _index(kernel, step.name)
    values: list[tuple[int, bytes]] = []
    if step.rename is not None:
        values.append((_NAME, step.rename.encode() + b"\0"))
    if step.mac is not None:
        values.append((_MAC, _packed_mac(step.mac)))
    if step.mtu is not None:
        values.append((_MTU, struct.pack("=I", step.mtu)))
    if step.master is not None:
        values.append((_MASTER, struct.pack("=I", _index(kernel, step.master))))
    if step.alias is not None:
        values.append((_ALIAS, step.alias.encode()))
    if values or step.is_up is not None:
        header = LinkHeader(index, int(bool(step.is_up)), int(step.is_up is not None))
        kernel.change(_NEW_LINK, header.packed() + packed(values))
    if step.learning is not None:
        learning = nested(_OF_PORT, [(_PORT_LEARNING, bytes([step.learning]))])
        header = LinkHeader(index, family=socket.AF_BRIDGE)
        kernel.change(_SET_LINK, header.packed() + packed([learning]))


def _packed_mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def has_address(kernel: Netlink, name: str, address: Interface) -> bool:
    """Whether the link has that address."""
    found = _addresses(kernel).get(_index(kernel, name), ())
    return any(each.ip == address.ip for each in found)


def add_address(kernel: Netlink, name: str, address: Interface) -> None:
    """Give the link an address. Raises OSError."""
    _address(kernel, _NEW_ADDRESS, name, address, CREATE | EXCLUSIVE)


def _address(kernel: Netlink, kind: int, name: str, address: Interface, flags: int = 0) -> None:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    header = AddressHeader(family, address.network.prefixlen, _UNIVERSE, _index(kernel, name))
    values = [(_LOCAL, address.ip.packed), (_ADDRESS, address.ip.packed)]
    kernel.change(kind, header.packed() + packed(values), flags)


def _append_route(kernel: Netlink, name: str, wanted: Route) -> None:
    destination = wanted.destination
    on_link = wanted.gateway is None
    header = RouteHeader(
        prefix=destination.prefixlen,
        table=_MAIN_TABLE,
        protocol=_STATIC,
        scope=_ON_THE_LINK if on_link else _UNIVERSE,
        kind=_UNICAST,
        flags=0 if on_link else _ON_LINK,
    )
    values = [(_OUTPUT, struct.pack("=I", _index(kernel, name)))]
    if destination.prefixlen:
        values.append((_DESTINATION, destination.network_address.packed))
    if wanted.gateway is not None:
        values.append((_GATEWAY, wanted.gateway.packed))
    kernel.change(_NEW_ROUTE, header.packed() + packed(values), CREATE | APPEND)
