"""Running code inside another network namespace."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final, TypeVar

_CLONE_NEWNET: Final = 0x40000000

_Result = TypeVar("_Result")


def enter_and_run(namespace: int, function: Callable[[], _Result]) -> _Result:
    """Run `function` in the network namespace of that descriptor. Raises what it raises, and OSError.

    The calling thread stays inside, so it must be one that ends afterwards (see ``threads``). Processes that
    the function starts are inside too.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"a network namespace cannot be entered: {os.strerror(code)}")
    return function()
