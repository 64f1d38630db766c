"""The Hyper-V enlightenments that this node's KVM supports."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_CHECK_EXTENSION = 0xAE03
_GET_MSR_INDEX_LIST = 0xC004AE02
_MSR_ROOM = 4096
"""More registers than KVM lists."""

_CAPABILITIES = {
    "base": 44,
    "time": 96,
    "synic": 123,
    "synic2": 148,
    "vpindex": 149,
    "tlbflush": 155,
    "ipi": 161,
}
"""Numbers of KVM's capabilities, as in linux/kvm.h."""

_REGISTERS = {
    "vpindex": 0x40000002,
    "reset": 0x40000003,
    "runtime": 0x40000010,
    "frequencies": 0x40000022,
    "synictimer": 0x400000B0,
    "reenlightenment": 0x40000106,
}
"""Numbers of Hyper-V's model specific registers."""


def interfaces(device: Path = Path("/dev/kvm")) -> tuple[str, ...]:
    """The names of the supported enlightenments, sorted. Raises OSError without a working KVM."""
    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        found = {name for name, number in _CAPABILITIES.items() if _has(descriptor, number)}
        registers = _registers(descriptor)
    finally:
        os.close(descriptor)
    return tuple(sorted(found | {name for name, number in _REGISTERS.items() if number in registers}))


def _has(descriptor: int, number: int) -> bool:
    return fcntl.ioctl(descriptor, _CHECK_EXTENSION, number) > 0


def _registers(descriptor: int) -> frozenset[int]:
    buffer = bytearray(struct.pack("I", _MSR_ROOM) + bytes(4 * _MSR_ROOM))
    fcntl.ioctl(descriptor, _GET_MSR_INDEX_LIST, buffer, True)
    (count,) = struct.unpack_from("I", buffer)
    return frozenset(struct.unpack_from(f"{count}I", buffer, 4))
