"""Messages to and from the kernel about links, addresses and routes (rtnetlink); of the network namespace in
which the socket was made.

The numbers are those of linux/netlink.h, linux/rtnetlink.h and linux/if_link.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self, TypeAlias

_MESSAGE = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR, _DONE = 2, 3
_REQUEST, _ACKNOWLEDGED, _DUMP = 0x1, 0x4, 0x300
_CHANGED_MEANWHILE = 0x10
_NESTED = 0x8000
_TYPE_BITS = 0x3FFF
_RECEIVED_BYTES = 128 * 1024
_SECONDS = 10.0
_DUMPS = 5
"""How often something is read that changes while it is being read."""

CREATE, EXCLUSIVE, APPEND = 0x400, 0x200, 0x800
"""Flags of requests for something new."""

Attributes: TypeAlias = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class LinkHeader:
    """``struct ifinfomsg``."""

    index: int = 0
    flags: int = 0
    changed_flags: int = 0
    family: int = socket.AF_UNSPEC

    layout: ClassVar = struct.Struct("=BxHiII")

    def packed(self) -> bytes:
        """As the kernel reads it."""
        return self.layout.pack(self.family, 0, self.index, self.flags, self.changed_flags)

    @classmethod
    def of(cls, message: bytes) -> Self:
        """As the kernel wrote it."""
        family, _, index, flags, changed = cls.layout.unpack_from(message)
        return cls(index, flags, changed, family)


@dataclass(frozen=True, slots=True)
class AddressHeader:
    """``struct ifaddrmsg``."""

    family: int = socket.AF_UNSPEC
    prefix: int = 0
    scope: int = 0
    index: int = 0

    layout: ClassVar = struct.Struct("=BBBBI")

    def packed(self) -> bytes:
        """As the kernel reads it."""
        return self.layout.pack(self.family, self.prefix, 0, self.scope, self.index)

    @classmethod
    def of(cls, message: bytes) -> Self:
        """As the kernel wrote it."""
        family, prefix, _, scope, index = cls.layout.unpack_from(message)
        return cls(family, prefix, scope, index)


@dataclass(frozen=True, slots=True)
class RouteHeader:
    """``struct rtmsg``."""

    family: int = socket.AF_INET
    prefix: int = 0
    table: int = 0
    protocol: int = 0
    scope: int = 0
    kind: int = 0
    flags: int = 0

    layout: ClassVar = struct.Struct("=BBBBBBBBI")

    def packed(self) -> bytes:
        """As the kernel reads it."""
        head = (self.family, self.prefix, 0, 0, self.table, self.protocol, self.scope, self.kind)
        return self.layout.pack(*head, self.flags)

    @classmethod
    def of(cls, message: bytes) -> Self:
        """As the kernel wrote it."""
        family, prefix, _, _, table, protocol, scope, kind, flags = cls.layout.unpack_from(message)
        return cls(family, prefix, table, protocol, scope, kind, flags)


class Netlink:
    """A socket to the kernel. Failures are OSError with the kernel's number."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.settimeout(_SECONDS)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def change(self, kind: int, payload: bytes, flags: int = 0) -> None:
        """Ask for a change and wait until the kernel says that it is made."""
        sequence = self._send(kind, payload, _REQUEST | _ACKNOWLEDGED | flags)
        for _ in self._answers(sequence):
            pass

    def dump(self, kind: int, payload: bytes) -> list[bytes]:
        """All that the kernel has of a kind: each its header and its attributes."""
        for _ in range(_DUMPS):
            try:
                return list(self._answers(self._send(kind, payload, _REQUEST | _DUMP)))
            except InterruptedError:
                continue
        raise InterruptedError(errno.EINTR, "links, addresses or routes change while they are being read")

    def _send(self, kind: int, payload: bytes, flags: int) -> int:
        self._sequence += 1
        length = _MESSAGE.size + len(payload)
        self._socket.sendto(_MESSAGE.pack(length, kind, flags, self._sequence, 0) + payload, (0, 0))
        return self._sequence

    def _answers(self, sequence: int) -> Iterator[bytes]:
        """What the kernel answers to a request, until it says that this is all."""
        changed = False
        while True:
            received = self._socket.recv(_RECEIVED_BYTES)
            while received:
                length, kind, flags, number, _ = _MESSAGE.unpack_from(received)
                payload, received = received[_MESSAGE.size : length], received[_aligned(length) :]
                if number != sequence:  # of a request whose answer nobody waited for
                    continue
                changed = changed or bool(flags & _CHANGED_MEANWHILE)
                if kind in (_ERROR, _DONE):
                    (code,) = struct.unpack_from("=i", payload)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    if changed:
                        raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
                    return
                yield payload


def attributes(payload: bytes) -> dict[int, bytes]:
    """The attributes in `payload` by number; the last of each."""
    found = {}
    while len(payload) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(payload)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _TYPE_BITS] = payload[_ATTRIBUTE.size : length]
        payload = payload[_aligned(length) :]
    return found


def packed(values: Iterable[tuple[int, bytes]]) -> bytes:
    """Attributes as the kernel reads them."""
    return b"".join(_packed(kind, value) for kind, value in values)


def nested(kind: int, values: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """An attribute that holds others."""
    return kind | _NESTED, packed(values)


def _packed(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
