"""How much longer everything takes because the machine is busy with other things.

Bounds of tests hold on a machine that has processors to spare. A test measures meanwhile how long a little
computing takes, and stretches its bounds by that.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ONCE_SECONDS = 0.05
_SAMPLE_SECONDS = 0.02
_PAUSE_SECONDS = 0.25
_WORK = bytes(256 * 1024)


def starvation() -> float:
    """How many times longer computing takes at this moment than it should."""
    return _spin(_ONCE_SECONDS) / _ONCE_SECONDS


def _spin(seconds: float) -> float:
    """Compute for so much of a processor's time; the seconds that it took."""
    begun, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < seconds:
        hashlib.sha256(_WORK).digest()  # without the interpreter's lock: other threads here are no starvation
    return time.perf_counter() - begun


@dataclass
class Starvation:
    """What was measured while a test did something else."""

    computed: float = 0.0
    took: float = 0.0

    @property
    def factor(self) -> float:
        """How many times longer computing took than it should, on average; at least 1."""
        return max(1.0, self.took / self.computed) if self.computed else 1.0


@contextmanager
def starvation_measured() -> Iterator[Starvation]:
    """Measure beside what is done inside, four times a second."""
    measured, ended = Starvation(), threading.Event()

    def sample() -> None:
        while not ended.wait(_PAUSE_SECONDS):
            measured.took += _spin(_SAMPLE_SECONDS)
            measured.computed += _SAMPLE_SECONDS

    thread = threading.Thread(target=sample, name="starvation", daemon=True)
    thread.start()
    try:
        yield measured
    finally:
        ended.set()
        thread.join()
