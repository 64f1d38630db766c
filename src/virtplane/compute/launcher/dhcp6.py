"""A DHCPv6 server for exactly one guest, which gets the one address that virt-handler configured.

It names no router: only router advertisements could, and nobody sends any (a guest's own configuration names
the gateway). RFC 8415.
"""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER_PORT = 547
CLIENT_PORT = 546
LEASE_SECONDS = 999 * 24 * 3600
_SERVERS = "ff02::1:2"
"""Where clients send everything (All_DHCP_Relay_Agents_and_Servers)."""
_SOLICIT, _ADVERTISE, _REQUEST, _CONFIRM, _RENEW, _REBIND, _REPLY, _RELEASE, _DECLINE = range(1, 10)
_INFORMATION_REQUEST = 11
_WITH_SERVER = (_REQUEST, _RENEW, _RELEASE, _DECLINE)
_WITHOUT_SERVER = (_SOLICIT, _CONFIRM, _REBIND)
_WITH_ADDRESS = (_SOLICIT, _REQUEST, _RENEW, _REBIND)
_CLIENT_ID, _SERVER_ID, _ADDRESSES, _ADDRESS, _STATUS, _RAPID_COMMIT = 1, 2, 3, 5, 13, 14
_SUCCESS, _NO_ADDRESS = 0, 2
_MAX_IDENTIFIER = 130
_SERVER = struct.pack("!HH6s", 3, 1, b"\2\0\0\0\0\0")
"""The server's identifier: of the MAC of its bridge."""
_SO_BINDTODEVICE = 25


def open_socket(interface: str) -> socket.socket:
    """A socket that receives only DHCPv6 requests on `interface`."""
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, interface.encode() + b"\0")
    group = socket.inet_pton(socket.AF_INET6, _SERVERS)
    joined = struct.pack("16si", group, socket.if_nametoindex(interface))
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, joined)
    server.bind(("::", SERVER_PORT))
    return server


def answer(request: bytes, address: str) -> bytes | None:
    """The reply to one datagram, with the guest's address; None if it is to be ignored."""
    options = _parse(request)
    if options is None:
        return None
    kind, names = request[0], dict(options)
    client, server = names.get(_CLIENT_ID), names.get(_SERVER_ID)
    if not client or len(client) > _MAX_IDENTIFIER:
        return None
    if (kind in _WITH_SERVER and server != _SERVER) or (kind in _WITHOUT_SERVER and server is not None):
        return None  # the guest took another server's offer
    if kind not in (*_WITH_SERVER, *_WITHOUT_SERVER, _INFORMATION_REQUEST):
        return None
    reply = _ADVERTISE if kind == _SOLICIT and _RAPID_COMMIT not in names else _REPLY
    said = _option(_CLIENT_ID, client) + _option(_SERVER_ID, _SERVER)
    if kind == _SOLICIT and reply == _REPLY:
        said += _option(_RAPID_COMMIT, b"")
    if kind in _WITH_ADDRESS:
        asked = [value[:4] for code, value in options if code == _ADDRESSES and len(value) >= 12]
        said += b"".join(_lease(identifier, address if not n else "") for n, identifier in enumerate(asked))
    elif kind != _INFORMATION_REQUEST:
        said += _status(_SUCCESS)
    return bytes([reply]) + request[1:4] + said


def _parse(request: bytes) -> list[tuple[int, bytes]] | None:
    """The options of a message; None if it is malformed."""
    if len(request) < 4:
        return None
    try:
        return list(_options(request[4:]))
    except ValueError:
        return None


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        if position + 4 > len(data):
            raise ValueError("an option is cut off")
        code, size = struct.unpack_from("!HH", data, position)
        end = position + 4 + size
        if end > len(data):
            raise ValueError("an option is cut off")
        yield code, data[position + 4 : end]
        position = end


def _lease(identifier: bytes, address: str) -> bytes:
    """What the guest gets for one of its associations: the address for the first, and none for others."""
    if not address:
        return _option(_ADDRESSES, identifier + bytes(8) + _status(_NO_ADDRESS))
    packed = socket.inet_pton(socket.AF_INET6, address)
    given = _option(_ADDRESS, packed + struct.pack("!II", LEASE_SECONDS, LEASE_SECONDS))
    renewal = struct.pack("!II", LEASE_SECONDS // 2, LEASE_SECONDS * 4 // 5)
    return _option(_ADDRESSES, identifier + renewal + given)


def _status(code: int) -> bytes:
    return _option(_STATUS, struct.pack("!H", code))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("!HH", code, len(value)) + value
