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
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 2.0
_PART = 10
"""A pause is this part of the time that has passed: samples cost the machine that is measured."""
_WORK = bytes(8 << 20)
"""Big: a thread that asks for the interpreter's lock often is held up by other threads of its process."""


def starvation() -> float:
    """How many times longer computing takes at this moment than it should."""
    took, computed = _compute(_ONCE_SECONDS)
    return max(1.0, took / computed)


def _compute(seconds: float) -> tuple[float, float]:
    """Compute for that much of a processor's time at least: the seconds that it took, and that it used."""
    begun, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < seconds:
        hashlib.sha256(_WORK).digest()  # without the interpreter's lock
    return time.perf_counter() - begun, time.thread_time() - used


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
    """Measure beside what is done inside, four times a second at first."""
    measured, ended = Starvation(), threading.Event()

    def sample() -> None:
        begun = time.perf_counter()
        pause = _PAUSE_SECONDS
        while not ended.wait(pause):
            passed = time.perf_counter() - begun
            pause = min(max(_PAUSE_SECONDS, passed / _PART), _LONGEST_PAUSE_SECONDS)
            took, computed = _compute(_SAMPLE_SECONDS)
            measured.took += took
            measured.computed += computed

    thread = threading.Thread(target=sample, name="starvation", daemon=True)
    thread.start()
    try:
        yield measured
    finally:
        ended.set()
        thread.join()
