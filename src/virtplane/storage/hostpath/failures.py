"""Failures that a CSI call answers with."""

from __future__ import annotations

import errno
from enum import Enum


class Code(Enum):
    """Those of gRPC's status codes that CSI gives a meaning to; values are Python gRPC's names."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"


class CsiFailure(Exception):
    """A call fails with `code` and `message`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def of_os_error(error: OSError, doing: str) -> CsiFailure:
    """The failure of a call whose system call failed; a full pool is told from a broken one."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return CsiFailure(Code.RESOURCE_EXHAUSTED if full else Code.INTERNAL, f"{doing}: {error}")


def invalid(message: str) -> CsiFailure:
    """INVALID_ARGUMENT."""
    return CsiFailure(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> CsiFailure:
    """NOT_FOUND."""
    return CsiFailure(Code.NOT_FOUND, message)
