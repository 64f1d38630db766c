"""UDP flows that the rules of services no longer lead: the kernel is told to forget them.

The kernel chooses a backend once for each flow, and remembers it while packets come. UDP has no end, so a
client that keeps its port would go on sending to a backend that is gone, or to a node port that had no
backends when it began. Rules decide anew for a flow that is forgotten.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kindling.network.inside import called_in
from kindling.network.services import Backend, ExternalKey, HostPort, ServicePort

Destination = tuple[str, int]
"""What clients send to: an address, empty for a place's own ones, and a port."""
Destinations = Mapping[Destination, frozenset[Backend]]


@dataclass(frozen=True, slots=True, order=True)
class Flows:
    """Flows to a destination: `backend` answers them, the destination itself, or whoever it is (None)."""

    address: str
    port: int
    backend: Backend | None = None


class FlowsKept(Exception):
    """The kernel did not forget flows; the text says why."""


def destinations(
    ports: Iterable[ServicePort], hosts: Iterable[HostPort], external: Mapping[ExternalKey, str]
) -> dict[Destination, frozenset[Backend]]:
    """Where UDP leads, as `rules.table` has it: of what two claim, the first has it."""
    found: dict[Destination, frozenset[Backend]] = {}
    for item in ports:
        if item.protocol != "udp":
            continue
        outer = [each for each in item.external if external.get((each, "udp", item.port)) == item.name]
        for address in (*item.addresses, *outer):
            found.setdefault((address, item.port), frozenset(item.backends))
        if item.node_port:
            found.setdefault(("", item.node_port), frozenset(item.backends))
    for host in hosts:
        if host.protocol == "udp":
            found.setdefault((host.address, host.port), frozenset((host.backend,)))
    return found


def stale(before: Destinations | None, after: Destinations) -> list[Flows]:
    """The flows to forget when `after` was loaded; `before` is None if it is not known what was loaded.

    Flows begun before then may go anywhere, so all of them choose anew.
    """
    if before is None:
        return [Flows(address, port) for address, port in sorted(after)]
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, frozenset()), after.get(key, frozenset())
        found += [Flows(*key, backend) for backend in sorted(old - new)]
        if new and not old:
            found.append(Flows(*key, Backend(*key)))
    return found


async def forget(flows: Sequence[Flows], version: int, namespace: Path | None = None) -> None:
    """Forget flows of IPv4 or IPv6 in the network namespace at `namespace`, or here. Raises FlowsKept."""
    if not flows:
        return
    try:
        await asyncio.to_thread(_forget, flows, version, namespace)
    except OSError as error:
        raise FlowsKept(f"forgetting {len(flows)} kinds of UDP flows: {error}") from error


# Netlink's messages, as linux/netfilter/nfnetlink_conntrack.h has them.
_NETFILTER = 12
_DELETE = 1 << 8 | 2
_REQUEST_AND_ANSWER, _ERROR = 5, 2
_ORIGINAL, _REPLY, _FILTER = 1, 2, 25
_ADDRESSES, _PROTOCOL = 1, 2
_NUMBER, _SOURCE_PORT, _TARGET_PORT = 1, 2, 3
_NESTED = 0x8000
_BY_SOURCE, _BY_TARGET, _BY_PROTOCOL, _BY_SOURCE_PORT, _BY_TARGET_PORT = 1, 2, 8, 16, 32
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_SECONDS = 10.0
_FEW = 32
"""The kernel looks through all its flows for each request that names none, which takes it ten milliseconds:
for more requests than this, it lists them once, and each that is stale is named."""
_LIST, _REQUEST_ALL, _DONE, _GONE = 1 << 8 | 1, 0x301, 3, 2
_KIND, _IDENTITY = 0x3FFF, 12
_ANSWER_BYTES = 1 << 17


def _forget(flows: Sequence[Flows], version: int, namespace: Path | None) -> None:
    with _netlink(namespace) as netlink:
        netlink.settimeout(_SECONDS)
        if len(flows) <= _FEW:
            for item in flows:
                _ask(netlink, request(item, version))
            return
        for names in list(_named(netlink, Stale(flows), version)):
            _ask(netlink, _message(_DELETE, _REQUEST_AND_ANSWER, version, names), tolerated=_GONE)


def _ask(netlink: socket.socket, message: bytes, tolerated: int = 0) -> None:
    netlink.send(message)
    kind, code = struct.unpack_from("=4xH10xi", netlink.recv(4096))
    if kind != _ERROR or -code not in (0, tolerated):
        raise OSError(-code, os.strerror(-code))


class Stale:
    """Which of the kernel's flows are some of `flows`; addresses are packed (pure)."""

    def __init__(self, flows: Iterable[Flows]) -> None:
        self._of: dict[tuple[bytes, int], set[tuple[bytes, int] | None]] = {}
        for item in flows:
            backend = item.backend
            answering = None if backend is None else (_packed(backend.address), backend.port)
            self._of.setdefault((_packed(item.address), item.port), set()).add(answering)

    def has(self, target: tuple[bytes, int], answering: tuple[bytes, int]) -> bool:
        """Whether a flow to `target`, which `answering` answers, is one of them."""
        for key in (target, (b"", target[1])):
            known = self._of.get(key)
            if known and (None in known or answering in known or (b"", answering[1]) in known):
                return True
        return False


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed if address else b""


def _named(netlink: socket.socket, wanted: Stale, version: int) -> Iterator[bytes]:
    """What names each of the kernel's flows of UDP that is wanted. Raises OSError."""
    every = _tuple(_ORIGINAL, b"", _TARGET_PORT, 0) + _filter(_BY_PROTOCOL, 0)
    netlink.send(_message(_LIST, _REQUEST_ALL, version, every))
    while True:
        answer, start = netlink.recv(_ANSWER_BYTES), 0
        while start + 16 <= len(answer):
            size, kind = struct.unpack_from("=IH", answer, start)
            if kind == _DONE:
                return
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", answer, start + 16)
                raise OSError(-code, os.strerror(-code))
            if names := _names(answer[start + 20 : start + size], wanted, version):
                yield names
            start += size + -size % 4


def _names(flow: bytes, wanted: Stale, version: int) -> bytes:
    """The original direction and the identity of a flow, if it is wanted."""
    found = dict(_attributes(flow))
    original, reply = found.get(_ORIGINAL), found.get(_REPLY)
    if original is None or reply is None:
        return b""
    target = _end(original, version, 1, _TARGET_PORT)
    if not wanted.has(target, _end(reply, version, 0, _SOURCE_PORT)):
        return b""
    return _attribute(_ORIGINAL | _NESTED, original) + _attribute(_IDENTITY, found.get(_IDENTITY, b""))


def _end(content: bytes, version: int, which: int, port_kind: int) -> tuple[bytes, int]:
    """Address and port of one end of a direction."""
    parts = dict(_attributes(content))
    addresses = dict(_attributes(parts.get(_ADDRESSES, b"")))
    ports = dict(_attributes(parts.get(_PROTOCOL, b"")))
    return addresses.get((1 if version == 4 else 3) + which, b""), int.from_bytes(ports.get(port_kind, b""))


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start + 4 <= len(content):
        size, kind = struct.unpack_from("=HH", content, start)
        if size < 4:
            return
        yield kind & _KIND, content[start + 4 : start + size]
        start += size + -size % 4


def request(flows: Flows, version: int) -> bytes:
    """The message that has the kernel forget flows: it compares what the flags name, and only that."""
    by_original, by_reply = _BY_PROTOCOL | _BY_TARGET_PORT, 0
    target = b""
    if flows.address:
        by_original |= _BY_TARGET
        target = _address(version, 1, flows.address)
    content = _tuple(_ORIGINAL, target, _TARGET_PORT, flows.port)
    if flows.backend is not None:
        by_reply = _BY_PROTOCOL | _BY_SOURCE_PORT
        source = b""
        if flows.backend.address:
            by_reply |= _BY_SOURCE
            source = _address(version, 0, flows.backend.address)
        content += _tuple(_REPLY, source, _SOURCE_PORT, flows.backend.port)
    return _message(_DELETE, _REQUEST_AND_ANSWER, version, content + _filter(by_original, by_reply))


def _filter(by_original: int, by_reply: int) -> bytes:
    flags = _attribute(1, struct.pack("=I", by_original)) + _attribute(2, struct.pack("=I", by_reply))
    return _attribute(_FILTER | _NESTED, flags)


def _message(kind: int, flags: int, version: int, content: bytes) -> bytes:
    # Version 1: the kernel looks at the family.
    content = struct.pack("=BBH", _FAMILIES[version], 1, 0) + content
    return struct.pack("=IHHII", 16 + len(content), kind, flags, 1, 0) + content


def _tuple(kind: int, address: bytes, port_kind: int, port: int) -> bytes:
    protocol = _attribute(_NUMBER, bytes([socket.IPPROTO_UDP])) + _attribute(port_kind, port.to_bytes(2))
    inner = _attribute(_ADDRESSES | _NESTED, address) + _attribute(_PROTOCOL | _NESTED, protocol)
    return _attribute(kind | _NESTED, inner)


def _address(version: int, which: int, text: str) -> bytes:
    first = 1 if version == 4 else 3
    return _attribute(first + which, ipaddress.ip_address(text).packed)


def _attribute(kind: int, content: bytes) -> bytes:
    size = 4 + len(content)
    return struct.pack("=HH", size, kind) + content + bytes(-size % 4)


def _netlink(namespace: Path | None) -> socket.socket:
    """A socket for netlink that belongs to a network namespace."""

    def opened() -> socket.socket:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)

    return opened() if namespace is None else called_in(namespace, opened)
