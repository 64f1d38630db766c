"""cgroup v2's device control: a BPF program that is asked before a process of the cgroup opens a device.

cgroup v1 has files for this (``permissions``); v2 has only such programs, which cannot be read or changed,
but replaced by whole new ones. All programs of a cgroup must allow an access.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280, "s390x": 351, "ppc64le": 361}
_LOAD, _ATTACH, _DETACH, _BY_ID, _QUERY = 5, 8, 9, 13, 16
_CGROUP_DEVICE = 15
"""The type of the program."""
_DEVICE_HOOK = 6
"""Where it is attached."""
_ALLOW_MULTI, _REPLACE = 0x02, 0x04
_ATTRIBUTES = 128
_PROGRAMS = 64

BLOCK, CHARACTER = 1, 2
MAKE, READ, WRITE = 1, 2, 4
ANY = -1

_MOVE, _AND, _LOAD_WORD, _SHIFT = 0xBF, 0x57, 0x61, 0x77
_UNLESS_EQUAL, _SET, _EXIT = 0x55, 0xB7, 0x95


@dataclass(frozen=True, slots=True)
class Rule:
    """Devices that may be accessed. `access` combines MAKE, READ and WRITE; ANY stands for every number."""

    kind: int
    major: int = ANY
    minor: int = ANY
    access: int = MAKE | READ | WRITE


def program(rules: Sequence[Rule]) -> bytes:
    """The instructions of a program that allows what any of `rules` allows, and nothing else."""
    # r1 is the request: kind in the lower half of the first word and access in the upper, major, minor.
    code = [
        _instruction(_LOAD_WORD, 2, 1, offset=0),
        _instruction(_MOVE, 3, 2),
        _instruction(_AND, 2, number=0xFFFF),
        _instruction(_SHIFT, 3, number=16),
        _instruction(_LOAD_WORD, 4, 1, offset=4),
        _instruction(_LOAD_WORD, 5, 1, offset=8),
    ]
    for rule in rules:
        code += _block(rule)
    code += [_instruction(_SET, 0, number=0), _instruction(_EXIT)]
    return b"".join(code)


def _block(rule: Rule) -> list[bytes]:
    """Allows what the rule names; otherwise goes on behind itself."""
    checks = [(2, rule.kind)]
    checks += [(register, number) for register, number in ((4, rule.major), (5, rule.minor)) if number != ANY]
    # What the access asks beyond the rule must be nothing.
    beyond = [_instruction(_MOVE, 6, 3), _instruction(_AND, 6, number=~rule.access)]
    allow = [_instruction(_SET, 0, number=1), _instruction(_EXIT)]
    size = len(checks) + len(beyond) + 1 + len(allow)
    block: list[bytes] = []
    for register, number in checks:
        block.append(_instruction(_UNLESS_EQUAL, register, number=number, offset=size - len(block) - 1))
    block += beyond
    block.append(_instruction(_UNLESS_EQUAL, 6, number=0, offset=size - len(block) - 1))
    return block + allow


def _instruction(code: int, target: int = 0, source: int = 0, *, offset: int = 0, number: int = 0) -> bytes:
    return struct.pack("=BBhi", code, target | source << 4, offset, number)


def enforce(cgroup: int, rules: Sequence[Rule]) -> None:
    """Let the open cgroup have exactly `rules`, in place of every program that it has. Raises OSError."""
    before = _attached(cgroup)
    fresh = _load(program(rules))
    try:
        if len(before) == 1:
            _attach(cgroup, fresh, _ALLOW_MULTI | _REPLACE, before[0])
        else:
            _attach(cgroup, fresh, _ALLOW_MULTI)
            for old in before:
                _call(_DETACH, struct.pack("=IIII", cgroup, old, _DEVICE_HOOK, 0))
    finally:
        for descriptor in (fresh, *before):
            os.close(descriptor)


def _attach(cgroup: int, fresh: int, flags: int, replaced: int = 0) -> None:
    _call(_ATTACH, struct.pack("=IIIII", cgroup, fresh, _DEVICE_HOOK, flags, replaced))


def _load(code: bytes) -> int:
    instructions, license_name = (
        ctypes.create_string_buffer(code, len(code)),
        ctypes.create_string_buffer(b"GPL"),
    )
    places = ctypes.addressof(instructions), ctypes.addressof(license_name)
    return _call(_LOAD, struct.pack("=IIQQ", _CGROUP_DEVICE, len(code) // 8, *places))[0]


def _attached(cgroup: int) -> list[int]:
    """Descriptors of the programs of the cgroup itself."""
    ids = (ctypes.c_uint32 * _PROGRAMS)()
    asked = struct.pack("=IIIIQI", cgroup, _DEVICE_HOOK, 0, 0, ctypes.addressof(ids), _PROGRAMS)
    answer = _call(_QUERY, asked)[1]
    (count,) = struct.unpack_from("=I", answer, 24)
    return list(_opened(ids[:count]))


def _opened(ids: Iterable[int]) -> Iterable[int]:
    for number in ids:
        yield _call(_BY_ID, struct.pack("=I", number))[0]


def _call(command: int, attributes: bytes) -> tuple[int, bytes]:
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None:
        raise OSError(f"devices cannot be plugged on {platform.machine()} with cgroup v2")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, command, buffer, _ATTRIBUTES)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf({command}): {os.strerror(code)}")
    return int(result), buffer.raw
