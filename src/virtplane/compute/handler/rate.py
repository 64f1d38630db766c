"""A limit on how often something may happen."""

from __future__ import annotations

import time
from collections.abc import Callable


class RateLimit:
    """Allows `count` events in `seconds`, counted in consecutive windows of that length."""

    def __init__(self, count: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._seconds = seconds
        self._clock = clock
        self._begun = clock()
        self._seen = 0

    def exceeded(self) -> bool:
        """Count an event; returns whether it exceeds the limit."""
        now = self._clock()
        if now - self._begun >= self._seconds:
            self._begun, self._seen = now, 0
        self._seen += 1
        return self._seen > self._count
