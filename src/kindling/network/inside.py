"""Calls inside another network namespace."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


def called_in(namespace: Path, act: Callable[[], T]) -> T:
    """What `act` returns, called in the network namespace at a path: sockets that it makes stay there.

    Raises OSError.
    """

    def entered() -> T:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(namespace, os.O_RDONLY)
        try:
            if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"entering {namespace}")
        finally:
            os.close(descriptor)
        return act()

    # A namespace is its thread's, so only a thread that ends afterwards goes there.
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(entered).result()
