"""Locks that one of several processes holds at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

Step = Callable[[str], AbstractContextManager[None]]
"""Shows the name of a step, and that it has ended."""


@contextmanager
def alone(lock: Path, step: Step, waiting: str) -> Iterator[None]:
    """Hold the lock of the file `lock`, which ends with the process; `waiting` is shown while another has it.

    Raises OSError where the file cannot be made.
    """
    with lock.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(waiting):
                fcntl.flock(stream, fcntl.LOCK_EX)
        yield
