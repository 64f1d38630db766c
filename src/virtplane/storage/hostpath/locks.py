"""Locks on folders: against other calls, and against the drivers of other nodes of the same machine.

The kernel releases a lock when its holder ends in whatever way, so no lock outlives a killed driver.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virtplane.storage.hostpath.failures import Code, CsiFailure, not_found

WAIT_SECONDS = 2.0
"""How long a call waits for another one before it is ABORTED."""
_STEP_SECONDS = 0.02


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of `folder`, that of `what` (for messages).

    Raises CsiFailure: NOT_FOUND without the folder, ABORTED while another operation goes on.
    """
    descriptor = _open(folder, what)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise CsiFailure(Code.ABORTED, f"an operation for {what} is already in progress")
            time.sleep(_STEP_SECONDS)
        if not is_same(descriptor, folder):
            raise not_found(f"{what} not found")
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open folder if nobody holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(folder: Path, what: str) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise not_found(f"{what} not found") from None


def is_same(descriptor: int, folder: Path) -> bool:
    """Whether the folder is still the one opened: it may have been removed while the lock was held."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(folder))
    except FileNotFoundError:
        return False
