"""Events about what a claim waits for: when that changes, and again once in a while.

Others write a claim often while it waits (an import's controllers do so ten times a second), and none of that
is news of the wait.
"""

from __future__ import annotations

import asyncio

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.runtime import EventKind, EventRecorder, Key


class ClaimEvents:
    """Records what each claim waits for, the same again only after `pause_seconds`."""

    def __init__(self, recorder: EventRecorder, pause_seconds: float) -> None:
        self._recorder, self._pause_seconds = recorder, pause_seconds
        self._told: dict[Key, tuple[tuple[str, ...], float]] = {}
        """The last event of a claim that waits, and when it was recorded."""

    def waits(self, claim: JsonObject, kind: EventKind, reason: str, message: str) -> None:
        """Record that `claim` waits, and for what."""
        what, now = (meta.uid(claim), reason, message), asyncio.get_running_loop().time()
        before, since = self._told.get(meta.key(claim), ((), 0.0))
        if what == before and now - since < self._pause_seconds:
            return
        self._told[meta.key(claim)] = (what, now)
        self._recorder.event(claim, kind, reason, message)

    def forget(self, key: Key) -> None:
        """A claim waits no more."""
        self._told.pop(key, None)
