"""What processes that run for long do before all else, so that they stay small."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from kubecore.aiohttp_loading import load_aiohttp

MAPPED_BYTES: Final = 256 * 1024
"""Buffers from this size on are mappings of their own. uvloop has one of exactly this size for each TLS
connection and uses a page or two of it; in the heap, pages that others used before would stay with it."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def stay_small() -> None:
    """Call this before anything imports aiohttp, while the process has one thread."""
    _map_large_buffers()
    load_aiohttp()


def _map_large_buffers() -> None:
    """Other C libraries than glibc have no such setting."""
    mallopt: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        # Otherwise glibc would give back all but 128 KiB of the heap's end, and soon ask for it again.
        mallopt(_M_TRIM_THRESHOLD, 2 * MAPPED_BYTES)
