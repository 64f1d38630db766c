"""Deletes events some time after their last update, so that storage stays bounded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import times

from .registry.writes import encoder
from .storage.journal import StorageError
from .storage.store import Conflict, Item, Store

_LOG = logging.getLogger(__name__)
_TURN_SECONDS = 60.0
_CHUNK = 100
"""Events looked at before others get their turn."""


def written_at(document: JsonObject) -> float:
    """Seconds since 1970 when an object was last written, by what only the server sets; 0 if unknown."""
    metadata = document.get("metadata") or {}
    texts = [get_str(entry, "time") for entry in get_list(metadata, "managedFields")]
    moments = []
    for text in (get_str(metadata, "creationTimestamp"), *texts):
        try:
            moments.append(times.parse_time(text).timestamp())
        except ValueError:
            continue
    return max(moments, default=0.0)


class EventExpiry:
    """Deletes objects of the bucket `bucket` that were last written `seconds` ago, as etcd's leases do."""

    def __init__(
        self, store: Store, bucket: str, seconds: float, *, now: Callable[[], float] = time.time
    ) -> None:
        self._store, self._bucket, self._seconds, self._now = store, bucket, seconds, now
        self._known: dict[str, tuple[Item, float]] = {}
        """When each event was written, so that it is read once."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.expire()
            await asyncio.sleep(min(_TURN_SECONDS, self._seconds))

    async def expire(self) -> None:
        """Delete the expired events."""
        items = self._store.list(self._bucket).items
        known, self._known = self._known, {}
        for number, item in enumerate(items):
            entry = known.get(item.path)
            if entry is None or entry[0] is not item:
                entry = (item, written_at(item.document()))
            if entry[1] + self._seconds > self._now():
                self._known[item.path] = entry
            else:
                await self._delete(item)
            if number % _CHUNK == _CHUNK - 1:
                await asyncio.sleep(0)

    async def _delete(self, item: Item) -> None:
        try:
            await self._store.delete(item.bucket, item.path, encoder(item.document()), item)
        except Conflict:
            return  # it was updated or deleted meanwhile; the next round checks again
        except StorageError as error:
            _LOG.warning("An event could not be deleted", extra={"event": item.path, "err": str(error)})
