"""Exponential back-off per key: 10 s doubling to 300 s, forgotten after 600 s without failure."""

from __future__ import annotations

from dataclasses import dataclass

INITIAL_SECONDS = 10.0
MAXIMUM_SECONDS = 300.0


@dataclass(slots=True)
class _Entry:
    delay: float
    since: float


class Backoff:
    """Back-off delays by key. Callers pass times in seconds, all from the same clock."""

    def __init__(self, initial: float = INITIAL_SECONDS, maximum: float = MAXIMUM_SECONDS) -> None:
        self._initial, self._maximum = initial, maximum
        self._entries: dict[str, _Entry] = {}

    def delay(self, key: str) -> float:
        """The current delay in seconds; 0 if the key has not failed."""
        entry = self._entries.get(key)
        return entry.delay if entry else 0.0

    def remaining(self, key: str, now: float, since: float | None = None) -> float:
        """The seconds left to wait, counted from `since` (default: the last failure)."""
        entry = self._entries.get(key)
        if entry is None:
            return 0.0
        start = entry.since if since is None else since
        if now - start > 2 * self._maximum:
            return 0.0
        return max(0.0, start + entry.delay - now)

    def is_waiting(self, key: str, now: float) -> bool:
        """Whether the back-off delay of the key has not passed yet."""
        return self.remaining(key, now) > 0

    def failed(self, key: str, now: float) -> None:
        """Record a failure: double the delay, or restart at the initial delay if the last failure is long
        ago.
        """
        entry = self._entries.get(key)
        if entry is None or now - entry.since > 2 * self._maximum:
            self._entries[key] = _Entry(self._initial, now)
        else:
            self._entries[key] = _Entry(min(entry.delay * 2, self._maximum), now)

    def forget(self, key: str) -> None:
        """Forget the failures of one key."""
        self._entries.pop(key, None)

    def forget_prefix(self, prefix: str) -> None:
        """Forget the failures of all keys that begin with `prefix`."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            del self._entries[key]
