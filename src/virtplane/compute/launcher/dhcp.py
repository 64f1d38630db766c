"""A DHCP server for exactly one guest: every request gets the one lease that virt-handler configured.

Plain UDP sockets suffice: requests are broadcast, and the answers are broadcast too. Binding port 67 without
privileges works because virt-handler lowers ``ip_unprivileged_port_start`` in the pod's network namespace.
RFC 2131 (messages), RFC 2132 (options), RFC 3442 (classless routes), RFC 3396 (long options), RFC 3397
(search domains).
"""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SERVER_PORT = 67
CLIENT_PORT = 68
LEASE_SECONDS = 999 * 24 * 3600
MAX_DATAGRAM = 2048
"""Longer requests arrive cut off, so that their options do not add up."""
_MAGIC = b"\x63\x82\x53\x63"
_FIXED = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s")
_DISCOVER, _OFFER, _REQUEST, _DECLINE, _ACK, _NAK, _RELEASE, _INFORM = range(1, 9)
_ETHERNET = 1
_PAD, _END = 0, 255
_LENGTHS = {50: 4, 53: 1, 54: 4}
"""Bytes of the options that decide about the answer: requested address, message type, server."""
_SO_BINDTODEVICE = 25


def open_socket(interface: str) -> socket.socket:
    """A socket that receives only DHCP requests on `interface`."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    server.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, interface.encode() + b"\0")
    server.bind(("", SERVER_PORT))
    return server


def answer(request: bytes, lease: dict[str, Any]) -> bytes | None:
    """The reply to one datagram; None if it is to be ignored.

    `lease` has ``mac``, ``address``, ``prefix``, ``server`` and optionally ``routers``, ``routes``
    (destination and gateway), ``dns``, ``search``, ``mtu``, ``hostname``, ``ntp``, ``tftp``, ``bootfile`` and
    ``private`` (option number to text).
    """
    parsed = _parse(request)
    if parsed is None:
        return None
    fields, options = parsed
    hardware = bytes.fromhex(lease["mac"].replace(":", ""))
    if fields[1:3] != (_ETHERNET, len(hardware)) or fields[11][: len(hardware)] != hardware:
        return None
    if options.get(54, _packed(lease["server"])) != _packed(lease["server"]):
        return None  # the guest took another server's offer
    kind = options[53][0]
    address = _packed(lease["address"])
    if kind == _DISCOVER:
        reply = _OFFER
    elif kind in (_REQUEST, _INFORM):
        reply = _NAK if kind == _REQUEST and options.get(50, address) != address else _ACK
    else:
        return None
    return _reply(fields, address, reply, lease)


def _parse(request: bytes) -> tuple[tuple[Any, ...], dict[int, bytes]] | None:
    """Fixed fields and options of a request; None if it is malformed."""
    if len(request) < _FIXED.size + 4 or request[0] != 1 or request[_FIXED.size : _FIXED.size + 4] != _MAGIC:
        return None
    options: dict[int, bytes] = {}
    position = _FIXED.size + 4
    while position < len(request) and request[position] != _END:
        code = request[position]
        if code == _PAD:
            position += 1
            continue
        if position + 1 >= len(request):
            return None
        end = position + 2 + request[position + 1]
        if end > len(request):
            return None
        options[code] = options.get(code, b"") + request[position + 2 : end]  # RFC 3396
        position = end
    if any(len(options.get(code, bytes(length))) != length for code, length in _LENGTHS.items()):
        return None
    return (_FIXED.unpack_from(request), options) if 53 in options else None


def _reply(fields: tuple[Any, ...], address: bytes, kind: int, lease: dict[str, Any]) -> bytes:
    server = _packed(lease["server"])
    given = b"\0\0\0\0" if kind == _NAK else address
    header = _FIXED.pack(
        2, fields[1], fields[2], 0, fields[4], 0, fields[6], fields[7], given, server, fields[10], fields[11],
        b"", _bootfile(lease),
    )  # fmt: skip
    options = [(53, bytes([kind])), (54, server)]
    if kind != _NAK:
        options += _lease_options(lease)
    body = b"".join(_encoded(code, value) for code, value in options)
    return (header + _MAGIC + body + b"\xff").ljust(300, b"\0")


def _encoded(code: int, value: bytes) -> bytes:
    """One option; a long value is continued in further options of the same code (RFC 3396)."""
    parts = [value[start : start + 255] for start in range(0, len(value), 255)]
    return b"".join(bytes([code, len(part)]) + part for part in parts)


def _bootfile(lease: dict[str, Any]) -> bytes:
    return str(lease.get("bootfile", "")).encode()[:127]


def _lease_options(lease: dict[str, Any]) -> list[tuple[int, bytes]]:
    options = [(51, struct.pack("!I", LEASE_SECONDS)), (1, _netmask(int(lease["prefix"])))]
    options.append((3, _all_packed(lease.get("routers", ()))))
    options.append((6, _all_packed(lease.get("dns", ()))))
    if lease.get("mtu"):
        options.append((26, struct.pack("!H", lease["mtu"])))
    options.append((121, _classless_routes(lease)))
    options.append((12, str(lease.get("hostname", "")).encode()))
    search = [str(name) for name in lease.get("search", ())]
    if search:
        options += [(15, search[0].encode()), (119, _domain_list(search))]
    options.append((42, _all_packed(lease.get("ntp", ()))))
    options.append((66, str(lease.get("tftp", "")).encode()))
    options.append((67, _bootfile(lease)))
    options += [(int(code), str(text).encode()) for code, text in lease.get("private", {}).items()]
    return options


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET, address)


def _all_packed(addresses: Iterable[str]) -> bytes:
    return b"".join(map(_packed, addresses))


def _netmask(prefix: int) -> bytes:
    return struct.pack("!I", (0xFFFFFFFF << (32 - prefix)) & 0xFFFFFFFF)


def _classless_routes(lease: dict[str, Any]) -> bytes:
    """All routes including the default route: clients that read option 121 ignore option 3."""
    everywhere = [("0.0.0.0/0", router) for router in lease.get("routers", ())[:1]]
    encoded = b""
    for destination, gateway in lease.get("routes", everywhere):
        network, _, prefix = destination.partition("/")
        length = int(prefix or 32)
        encoded += bytes([length]) + _packed(network)[: (length + 7) // 8] + _packed(gateway)
    return encoded


def _domain_list(names: list[str]) -> bytes:
    labels = (
        b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".") if label)
        + b"\0"
        for name in names
    )
    encoded = b""
    for entry in labels:
        if len(encoded) + len(entry) > 255:
            break
        encoded += entry
    return encoded
