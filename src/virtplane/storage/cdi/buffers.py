"""Memory of programs through which volumes pass, a quarter of a MiB at a time.

The C library gives what is freed back to the kernel, which clears it again for the next piece: half of what
an import asks of the processor.
"""

from __future__ import annotations

import ctypes
import logging

_log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Parameters of mallopt(3)."""
_KEPT_BYTES = 16 << 20
_AT_ONCE_BYTES = 4 << 20
"""Pieces that are larger are mapped for themselves: they are few."""


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
