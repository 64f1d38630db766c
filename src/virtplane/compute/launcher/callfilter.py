"""System calls that are answered without being made, for programs that want to confine themselves further
than the container lets them: the container confines them already.

The answer counts more than the refusal of an earlier filter, that of the container's seccomp profile.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_ALLOW, _DONE = 0x7FFF0000, 0x00050000
"""What a filter returns: let the call through; it returns 0 without being made."""

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {
    "x86_64": {"mount": 165, "pivot_root": 155, "setgroups": 116, "umount2": 166, "unshare": 272},
    "aarch64": {"mount": 40, "pivot_root": 41, "setgroups": 159, "umount2": 39, "unshare": 97},
}
"""The kernel's numbers of calls, by machine."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jump_true", ctypes.c_ubyte),
        ("jump_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def answer_instead(calls: Iterable[str]) -> None:
    """Let this process, and what it starts, believe that `calls` succeed. Raises OSError, and KeyError for
    a machine or a call that is not known.
    """
    machine = os.uname().machine
    numbers = [_NUMBERS[machine][call] for call in calls]
    count = len(numbers)
    lines = [
        _Instruction(_LOAD_WORD, 0, 0, _ARCHITECTURE_OFFSET),
        _Instruction(_JUMP_IF_EQUAL, 0, count + 1, _ARCHITECTURES[machine]),
        _Instruction(_LOAD_WORD, 0, 0, _NUMBER_OFFSET),
    ]
    lines += [_Instruction(_JUMP_IF_EQUAL, count - index, 0, number) for index, number in enumerate(numbers)]
    lines += [_Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, _DONE)]
    program = _Program(len(lines), (_Instruction * len(lines))(*lines))
    kernel = ctypes.CDLL(None, use_errno=True)
    check(kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(kernel.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))


def check(result: int) -> None:
    """Raise the error of a call of the C library that failed (OSError)."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
