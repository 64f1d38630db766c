"""What processes that run for long do before all else, so that they stay small."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable
from typing import Final

MAPPED_BYTES: Final = 256 * 1024
"""Buffers from this size on are mappings of their own. uvloop has one of exactly this size for each TLS
connection and uses a page or two of it; in the heap, pages that others used before would stay with it."""

_M_MMAP_THRESHOLD: Final = -3
_AUTHORITIES: Final = "SSL_CERT_FILE"


def stay_small() -> None:
    """Call this before anything imports aiohttp.

    aiohttp's own TLS context then trusts no authority: a connection must be given one of its own, as all are.
    """
    _map_large_buffers()
    _import_without_authorities("aiohttp")


def _map_large_buffers() -> None:
    """Other C libraries than glibc have no such setting."""
    mallopt: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)


def _import_without_authorities(module: str) -> None:
    """Import a module that would read the system's certificate authorities (1.7 MiB) as it is imported."""
    before = os.environ.get(_AUTHORITIES)
    os.environ[_AUTHORITIES] = os.devnull
    try:
        importlib.import_module(module)
    finally:
        if before is None:
            del os.environ[_AUTHORITIES]
        else:
            os.environ[_AUTHORITIES] = before
