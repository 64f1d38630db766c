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


def is_heard(ear: socket.socket, mouth: socket.socket, sent: bytes, last: bytes) -> bool:
    """Whether `sent` arrives, told when `last` does, which is sent after it and has `LAST` in it."""
    ear.settimeout(5)
    mouth.send(sent)
    mouth.send(last)
    seen = False
    while LAST not in (heard := ear.recv(2048)):
        # Not the whole frame: tags of VLANs are taken off.
        seen = seen or SENT in heard
    return seen
