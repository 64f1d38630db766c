"""Memory of programs through which volumes pass, up to a MiB at a time.

The C library gives what is freed back to the kernel, which clears it again for the next piece: half of what
an import asks of the processor.
"""

from __future__ import annotations

import ctypes
import logging
from asyncio import BaseTransport
from typing import Protocol, runtime_checkable

_log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 16 << 20
_AT_ONCE_BYTES = 4 << 20
"""Pieces that are larger are mapped for themselves: they are few."""
_READ_BYTES = 1 << 20


@runtime_checkable
class _ReadsAtMost(Protocol):
    """A connection that knows how much it reads at a time."""

    max_size: int


def read_more_at_once(connection: BaseTransport | None) -> None:
    """Have `connection` read up to a MiB at a time, if it can be told: asyncio's own size is a quarter of it.

    Each time costs as much as a MiB itself.
    """
    if isinstance(connection, _ReadsAtMost):
        connection.max_size = _READ_BYTES


def keep_freed_memory() -> None:
    """Have the process keep up to 16 MiB that it has freed, for the pieces to come."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = (
        (_M_MMAP_THRESHOLD, _AT_ONCE_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
        (_M_TOP_PAD, _AT_ONCE_BYTES),
    )
    if mallopt is None or not all(mallopt(parameter, size) for parameter, size in wanted):
        _log.warning("the C library keeps no freed memory: transfers take more of the processor")
