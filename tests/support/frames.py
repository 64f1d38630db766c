"""Ethernet frames, made by hand as an attacker makes them, and whether they arrive."""

from __future__ import annotations

import socket
import struct

IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
BROADCAST = "ff:ff:ff:ff:ff:ff"
SENT, LAST = b"is it let through?", b"the end of what was sent"
VLAN = struct.pack(">HH", 5, IPV4)
ROUTER = struct.pack(">IHBB", 6 << 28, len(SENT), 59, 255) + socket.inet_pton(socket.AF_INET6, "fe80::1")
ROUTER += socket.inet_pton(socket.AF_INET6, "ff02::1")
"""A packet to all hosts on the link, as routers send their advertisements."""


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def frame(source: str, kind: int, payload: bytes, target: str = BROADCAST) -> bytes:
    return mac(target) + mac(source) + struct.pack(">H", kind) + payload + SENT


def arp(sender_mac: str, sender: str, *, operation: int = 2) -> bytes:
    head = struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation)
    return head + mac(sender_mac) + socket.inet_aton(sender) + mac(BROADCAST) + socket.inet_aton("0.0.0.0")


def ip(source: str, *, ports: tuple[int, int] = (5000, 5000), content: bytes = SENT) -> bytes:
    udp = struct.pack(">HHHH", *ports, 8 + len(content), 0) + content
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    head += socket.inet_aton(source) + socket.inet_aton("255.255.255.255")
    words = struct.unpack(">10H", head)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return head[:10] + struct.pack(">H", checksum) + head[12:] + udp


SOLICITATION, ADVERTISEMENT = 135, 136
UDP, FRAGMENT, ICMP6, DESTINATION_OPTIONS = 17, 44, 58, 60
ALL_NODES = "ff02::1"


def ip6(
    source: str, content: bytes, *, header: int = ICMP6, target: str = ALL_NODES, hops: int = 255
) -> bytes:
    """A packet of IPv6 without options: `header` says what its content is."""
    addresses = b"".join(socket.inet_pton(socket.AF_INET6, text) for text in (source, target))
    return struct.pack(">IHBB", 6 << 28, len(content), header, hops) + addresses + content


def neighbour(kind: int, target: str, option: bytes = b"") -> bytes:
    """A solicitation or an advertisement about `target` (RFC 4861)."""
    return struct.pack(">BBHI", kind, 0, 0, 0x60000000) + socket.inet_pton(socket.AF_INET6, target) + option


def link_option(kind: int, address: str) -> bytes:
    """The MAC of the sender (1) or of the target (2) of neighbour discovery."""
    return bytes([kind, 1]) + mac(address)


def icmp6(kind: int, content: bytes = SENT) -> bytes:
    return struct.pack(">BBHI", kind, 0, 0, 0) + content


def udp6(ports: tuple[int, int], content: bytes = SENT) -> bytes:
    return struct.pack(">HHHH", *ports, 8 + len(content), 0) + content


def fragment(header: int, content: bytes, *, offset: int = 0, more: bool = True) -> bytes:
    """A part of a packet, `offset` a multiple of eight bytes, behind its fragment header."""
    return struct.pack(">BBHI", header, 0, offset | more, 7) + content


def is_heard(ear: socket.socket, mouth: socket.socket, sent: bytes, last: bytes, mark: bytes = SENT) -> bool:
    """Whether `sent` arrives, told when `last` does, which is sent after it and has `LAST` in it.

    `mark` is what it is known by.
    """
    ear.settimeout(5)
    mouth.send(sent)
    mouth.send(last)
    seen = False
    while LAST not in (heard := ear.recv(2048)):
        # Not the whole frame: tags of VLANs are taken off.
        seen = seen or mark in heard
    return seen
