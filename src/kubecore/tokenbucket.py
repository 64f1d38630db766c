"""A limit of how often something is done: token buckets."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """`rate` tokens per second, at most `burst` saved up; taking one may have to wait."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._updated = clock()

    def reserve(self) -> float:
        """Take a token and return the seconds until it is available (0 if one was saved up)."""
        self._refill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def seconds_until_next(self) -> float:
        """How long it takes until there is a token to take; 0 if there is one."""
        self._refill()
        return max(0.0, (1 - self._tokens) / self._rate)

    def try_take(self) -> bool:
        """Take a token if there is one now."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
