"""A reserve in each pool, for the calls by which a full one gets empty again and its volumes stay usable.

Even removing a volume takes a little space. A file holds some; when the file system is full, a piece of it is
given up and the call, which can be repeated, is made again. The file grows again when there is room.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from virtplane.storage.hostpath.failures import Code, CsiFailure
from virtplane.storage.hostpath.images import MIB
from virtplane.storage.hostpath.pool import Pool

_PIECE = 2 * MIB
_PIECES = 8
_SMALL = 100
"""The reserve is at most this part of a pool."""

_Result = TypeVar("_Result")


def replenish(pools: Iterable[Pool]) -> None:
    """Have each pool's reserve complete where there is room."""
    for pool in pools:
        if not pool.is_there():
            continue
        space = pool.space()
        wanted = min(_PIECES * _PIECE, space.f_blocks * space.f_frsize // _SMALL)
        # A full pool has none; some file systems cannot allocate ahead.
        with suppress(OSError):
            descriptor = os.open(pool.reserve, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(descriptor).st_size < wanted:
                    os.posix_fallocate(descriptor, 0, wanted)
            finally:
                os.close(descriptor)


def despite_full(pools: Iterable[Pool], action: Callable[[], _Result]) -> _Result:
    """Do `action`, which can be repeated; where a pool is full, with the help of its reserve."""
    pools = tuple(pools)
    for _ in range(_PIECES):
        try:
            return action()
        except CsiFailure as failure:
            if failure.code is not Code.RESOURCE_EXHAUSTED or not _give_up_pieces(pools):
                raise
        except OSError as error:
            if error.errno != errno.ENOSPC or not _give_up_pieces(pools):
                raise
    return action()


def _give_up_pieces(pools: Iterable[Pool]) -> bool:
    """Free a piece of every reserve; gives whether there was any."""
    given = False
    for pool in pools:
        with suppress(FileNotFoundError):
            size = pool.reserve.stat().st_size
            if size:
                os.truncate(pool.reserve, max(0, size - _PIECE))
                given = True
    return given
