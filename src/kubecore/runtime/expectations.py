"""What a controller has asked for and not yet seen in its cache.

A controller that creates five pods and looks at its cache a moment later must not create five more.
It records what it expects, and does nothing for that key until the cache has shown it, or too much time
has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kubecore.runtime.informer import Key

TIMEOUT_SECONDS = 300.0
"""After so long without the expected events, expectations count as fulfilled (client-go's number)."""


@dataclass(slots=True)
class _Expected:
    since: float
    creations: int = 0
    deletions: set[str] = field(default_factory=set)


class Expectations:
    """Expected creations (counted) and deletions (by uid) for each key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expected: dict[Key, _Expected] = {}

    def expect_creations(self, key: Key, count: int) -> None:
        """`count` creations are about to be requested."""
        self._entry(key).creations += count

    def expect_deletions(self, key: Key, uids: Iterable[str]) -> None:
        """Deletions of the objects with `uids` are about to be requested."""
        self._entry(key).deletions.update(uids)

    def creation_observed(self, key: Key) -> None:
        """A creation arrived in the cache, or the request for it failed."""
        entry = self._expected.get(key)
        if entry is not None:
            entry.creations = max(0, entry.creations - 1)

    def deletion_observed(self, key: Key, uid: str) -> None:
        """A deletion arrived in the cache, or the request for it failed."""
        entry = self._expected.get(key)
        if entry is not None:
            entry.deletions.discard(uid)

    def satisfied(self, key: Key) -> bool:
        """Whether the cache shows all that was asked for, so that it can be trusted."""
        entry = self._expected.get(key)
        if entry is None:
            return True
        if (entry.creations <= 0 and not entry.deletions) or self._clock() - entry.since > TIMEOUT_SECONDS:
            del self._expected[key]
            return True
        return False

    def forget(self, key: Key) -> None:
        """The object behind `key` is gone."""
        self._expected.pop(key, None)

    def _entry(self, key: Key) -> _Expected:
        entry = self._expected.get(key)
        if entry is None:
            entry = self._expected[key] = _Expected(self._clock())
        return entry
