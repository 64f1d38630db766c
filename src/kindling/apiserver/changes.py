"""Following stored objects inside the server: callbacks with decoded objects."""

from __future__ import annotations

from collections.abc import Callable

from kubecore.json import JsonObject

from .storage.store import ADDED, Event, Store

Callback = Callable[[str, JsonObject], None]
"""(ADDED, MODIFIED or DELETED, object); the object is the callee's own only to read."""


class ChangeFeed:
    """Delivers each committed change of a bucket, decoded once, to all subscribers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._callbacks: dict[str, list[Callback]] = {}

    def on_change(self, bucket: str, callback: Callback) -> None:
        """Report existing objects as ADDED, then every change."""
        callbacks = self._callbacks.get(bucket)
        if callbacks is None:
            callbacks = self._callbacks[bucket] = []
            self._store.subscribe(bucket, self._deliver)
        for item in self._store.list(bucket).items:
            callback(ADDED, item.document())
        callbacks.append(callback)

    def _deliver(self, event: Event) -> None:
        document = event.item.document()
        for callback in self._callbacks[event.item.bucket]:
            callback(event.type, document)
