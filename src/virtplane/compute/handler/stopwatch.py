"""How long the steps of a start take."""

from __future__ import annotations

import time


class Stopwatch:
    """Measures the steps of a start, in milliseconds."""

    def __init__(self) -> None:
        self.laps: dict[str, int] = {}
        self._last = time.monotonic()

    def lap(self, step: str) -> None:
        """End the time of `step` and begin the next."""
        now = time.monotonic()
        self.laps[step] = round((now - self._last) * 1000)
        self._last = now
