"""Everything the server stores, in memory and encoded, in front of the journal.

Objects lie in *buckets* (one per stored resource, named by ``ResourceDefinition.storage_prefix``) under a
*path* (``namespace/name`` or ``name``). A revision number orders all writes; it is the resourceVersion.
All methods belong to the event loop's thread. Reads see only durable state; writers build on the newest
state, durable or not, since writes become durable in order.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kubecore.json import JsonObject

from .journal import Journal, Row, StorageError, StorageLost

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Item:
    """One object at one revision; immutable. `value` is its encoding as clients get it."""

    __slots__ = ("_labels", "bucket", "created_revision", "fields", "path", "revision", "value")

    def __init__(self, bucket: str, path: str, value: bytes, revision: int, created_revision: int) -> None:
        self.bucket = bucket
        self.path = path
        self.value = value
        self.revision = revision
        self.created_revision = created_revision
        self._labels: JsonObject | None = None
        self.fields: tuple[object, dict[str, str]] | None = None
        """Values of field labels, kept by whoever evaluates field selectors (for one kind of reader)."""

    def document(self) -> JsonObject:
        """A new decoded copy."""
        decoded: JsonObject = orjson.loads(self.value)
        return decoded

    @property
    def labels(self) -> JsonObject:
        """metadata.labels; not to be changed."""
        if self._labels is None:
            self._labels = self.document().get("metadata", {}).get("labels") or {}
        return self._labels


class Event:
    """One committed change. `item` of a deletion is the object's last state with the deletion's revision."""

    __slots__ = ("departed", "frames", "item", "previous", "type")

    def __init__(self, event_type: str, item: Item, previous: Item | None) -> None:
        self.type = event_type
        self.item = item
        self.previous = previous
        self.departed: Item | None = None
        """The previous state with this event's revision; made for the first selector that needs it."""
        self.frames: dict[Any, bytes] = {}
        """Encodings of this event, shared by all watchers that want the same."""


class Conflict(Exception):
    """The object is not in the state the writer expected. `current` is its newest state, None if absent."""

    def __init__(self, current: Item | None) -> None:
        super().__init__("the object has been modified")
        self.current = current


class Compacted(Exception):
    """History of that revision is gone. `oldest` is the first revision still known."""

    def __init__(self, oldest: int) -> None:
        super().__init__("the requested history is gone")
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class Window:
    """How much history is kept for watchers and for lists at an older revision."""

    events: int = 20_000
    """Most events; older ones are forgotten."""
    value_bytes: int = 24 * 1024 * 1024
    """Most bytes of superseded values."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a bucket: `items` in order of path, and how many follow."""

    items: Sequence[Item]
    remaining: int
    revision: int
    """The revision at which it was so."""


class _Bucket:
    __slots__ = ("items", "paths", "subscribers")

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.paths: list[str] = []
        self.subscribers: dict[object, Callable[[Event], None]] = {}


class Store:
    """See the module. Open, use, close on one event loop."""

    def __init__(self, journal: Journal, window: Window | None = None) -> None:
        self._journal = journal
        self._window = window or Window()
        self._buckets: dict[str, _Bucket] = {}
        self._pending: dict[tuple[str, str], Item | None] = {}
        self._pending_revision: dict[tuple[str, str], int] = {}
        self._waiting: dict[int, asyncio.Future[Item]] = {}
        self._writes: dict[int, tuple[Item, Item | None]] = {}
        self._events: deque[Event] = deque()
        self._event_bytes = 0
        self._namespace_bytes: dict[str, int] = {}
        self._assigned = 0
        self.revision = 0
        """The newest durable revision."""
        self.compacted_revision = 0
        """History up to and including this revision is gone."""
        self.problem = ""
        """Why the last write did not reach the disk; empty after a good one."""
        self.lost = asyncio.Event()
        """Set when no write will succeed any more; a new start finds out what the disk holds."""

    # --- life cycle

    def open(self) -> None:
        """Load what is stored and accept writes. Raises StorageError."""
        loaded = self._journal.open()
        self.revision = self.compacted_revision = loaded.compacted_revision
        for row in loaded.rows:
            item = Item(row.bucket, row.path, row.value, row.revision, row.created_revision)
            self._apply(row, item, quiet=True)
        for bucket in self._buckets.values():
            bucket.paths = sorted(bucket.items)
        # The newest revisions may have been deletions, of which compaction left nothing.
        self.revision = max(self.revision, loaded.compacted_revision, 1)
        self._assigned = self.revision
        self._journal.start(self._committed)

    async def close(self) -> None:
        """Finish queued writes and release the journal."""
        await self._journal.close()

    # --- reads (durable state)

    def get(self, bucket: str, path: str) -> Item | None:
        """The object, or None."""
        found = self._buckets.get(bucket)
        return found.items.get(path) if found else None

    def newest(self, bucket: str, path: str) -> Item | None:
        """The object including writes that are not durable yet, on which a write must be based."""
        key = (bucket, path)
        if key in self._pending:
            return self._pending[key]
        return self.get(bucket, path)

    def count(self, bucket: str) -> int:
        """Number of objects."""
        found = self._buckets.get(bucket)
        return len(found.items) if found else 0

    def bytes_of(self, namespace: str) -> int:
        """How many bytes the objects of a namespace have together, encoded."""
        return self._namespace_bytes.get(namespace, 0)

    def buckets(self) -> list[str]:
        """Buckets that hold something."""
        return [name for name, bucket in self._buckets.items() if bucket.items]

    def list(
        self, bucket: str, prefix: str = "", *, after: str = "", limit: int = 0, revision: int | None = None
    ) -> Page:
        """Objects whose path starts with `prefix`, from the path `after` on, at most `limit` (0: all).

        With a `revision`, as it was then; raises Compacted when that is not known any more.
        """
        found = self._buckets.get(bucket)
        if revision is not None and revision < self.revision:
            return self._list_at(bucket, prefix, after, limit, revision)
        if found is None:
            return Page((), 0, self.revision)
        paths, items = found.paths, found.items
        if not prefix and not after and not limit:
            return Page([items[path] for path in paths], 0, self.revision)
        start = bisect.bisect_left(paths, max(prefix, after))
        end = bisect.bisect_left(paths, prefix + "\U0010ffff") if prefix else len(paths)
        stop = min(end, start + limit) if limit else end
        return Page([items[path] for path in paths[start:stop]], max(0, end - stop), self.revision)

    def _list_at(self, bucket: str, prefix: str, after: str, limit: int, revision: int) -> Page:
        if revision < self.compacted_revision:
            raise Compacted(self.compacted_revision)
        found = self._buckets.get(bucket)
        state = dict(found.items) if found else {}
        for event in reversed(self._events):
            if event.item.revision <= revision:
                break
            if event.item.bucket == bucket:
                if event.previous is None:
                    state.pop(event.item.path, None)
                else:
                    state[event.item.path] = event.previous
        paths = sorted(path for path in state if path.startswith(prefix) and path >= after)
        chosen = paths[:limit] if limit else paths
        return Page([state[path] for path in chosen], len(paths) - len(chosen), revision)

    # --- writes

    async def put(
        self, bucket: str, path: str, encode: Callable[[int], bytes], expected: Item | None
    ) -> Item:
        """Store what `encode(revision)` returns, if `expected` still is the newest state (None: absent).

        Returns once durable. Raises Conflict, StorageError.
        """
        return await self._write(bucket, path, encode, expected, deleted=False)

    async def delete(self, bucket: str, path: str, encode: Callable[[int], bytes], expected: Item) -> Item:
        """Remove the object if `expected` still is its newest state; `encode` gives its last state."""
        return await self._write(bucket, path, encode, expected, deleted=True)

    async def _write(
        self, bucket: str, path: str, encode: Callable[[int], bytes], expected: Item | None, *, deleted: bool
    ) -> Item:
        current = self.newest(bucket, path)
        if current is not expected:
            raise Conflict(current)
        revision = self._assigned + 1
        value = encode(revision)
        self._assigned = revision
        created = expected.created_revision if expected else revision
        item = Item(bucket, path, value, revision, created)
        previous_revision = expected.revision if expected else 0
        key = (bucket, path)
        self._pending[key] = None if deleted else item
        self._pending_revision[key] = revision
        self._writes[revision] = (item, expected)
        future: asyncio.Future[Item] = asyncio.get_running_loop().create_future()
        self._waiting[revision] = future
        self._journal.append(Row(revision, bucket, path, deleted, created, previous_revision, value))
        # A cancelled caller must not cancel a write in progress.
        return await asyncio.shield(future)

    def _committed(self, rows: Sequence[Row], error: BaseException | None) -> None:
        if error is not None:
            if any(row.revision in self._waiting for row in rows):  # else it failed with a batch before
                self._failed(error)
            return
        self.problem = ""
        done: list[tuple[asyncio.Future[Item], Item]] = []
        for row in rows:
            item, _ = self._writes.pop(row.revision)
            key = (row.bucket, row.path)
            if self._pending_revision.get(key) == row.revision:
                del self._pending[key], self._pending_revision[key]
            self._apply(row, item, quiet=False)
            done.append((self._waiting.pop(row.revision), item))
        for future, item in done:
            if not future.done():
                future.set_result(item)
        self._trim()

    def _failed(self, error: BaseException) -> None:
        """A batch did not reach the disk: neither did anything queued after it."""
        self.problem = str(error)
        if isinstance(error, StorageLost):
            self.lost.set()
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._writes.clear()
        self._pending.clear()
        self._pending_revision.clear()
        self._journal.reset()
        for future in waiting:
            if not future.done():
                future.set_exception(StorageError(f"the write did not reach the disk: {error}"))

    def _apply(self, row: Row, item: Item, *, quiet: bool) -> None:
        bucket = self._buckets.get(row.bucket)
        if bucket is None:
            bucket = self._buckets[row.bucket] = _Bucket()
        previous = bucket.items.get(row.path)
        self._count(row, item, previous)
        if row.deleted:
            bucket.items.pop(row.path, None)
            event_type = DELETED
            if previous is not None and not quiet:
                del bucket.paths[bisect.bisect_left(bucket.paths, row.path)]
        else:
            bucket.items[row.path] = item
            event_type = MODIFIED if previous is not None else ADDED
            if previous is None and not quiet:
                bisect.insort(bucket.paths, row.path)
        self.revision = row.revision
        if quiet and (row.revision <= self.compacted_revision or (row.deleted and previous is None)):
            return
        event = Event(event_type, item, previous)
        self._events.append(event)
        self._event_bytes += len(previous.value) if previous else 0
        for subscriber in list(bucket.subscribers.values()):
            subscriber(event)

    def _count(self, row: Row, item: Item, previous: Item | None) -> None:
        namespace, slash, _ = row.path.partition("/")
        if not slash:
            return
        grown = (0 if row.deleted else len(item.value)) - (len(previous.value) if previous else 0)
        size = self._namespace_bytes.get(namespace, 0) + grown
        if size:
            self._namespace_bytes[namespace] = size
        else:
            self._namespace_bytes.pop(namespace, None)

    def _trim(self) -> None:
        window = self._window
        if len(self._events) <= window.events and self._event_bytes <= window.value_bytes:
            return
        # Remove a tenth at a time, so that the journal is not called for single rows.
        self._forget(
            lambda _: (
                len(self._events) > window.events * 9 // 10
                or self._event_bytes > window.value_bytes * 9 // 10
            )
        )

    def compact(self, revision: int, most: int) -> bool:
        """Forget history up to `revision`, at most `most` events of it; True when some is left."""
        left = len(self._events) - most
        self._forget(lambda event: event.item.revision <= revision and len(self._events) > left)
        return bool(self._events) and self._events[0].item.revision <= revision

    def _forget(self, is_due: Callable[[Event], bool]) -> None:
        """Drop the oldest events as long as they are due."""
        superseded: list[int] = []
        before = self.compacted_revision
        while self._events and is_due(self._events[0]):
            event = self._events.popleft()
            if event.previous is not None:
                self._event_bytes -= len(event.previous.value)
                superseded.append(event.previous.revision)
            if event.type == DELETED:
                superseded.append(event.item.revision)
            self.compacted_revision = event.item.revision
        if self.compacted_revision != before:
            self._journal.forget(superseded, self.compacted_revision)

    # --- changes

    def subscribe(self, bucket: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` for each change from now on, in order; returns what ends it."""
        found = self._buckets.get(bucket)
        if found is None:
            found = self._buckets[bucket] = _Bucket()
        token = object()
        found.subscribers[token] = callback
        subscribers = found.subscribers
        return lambda: subscribers.pop(token, None) and None

    def history(self, bucket: str, since: int) -> Iterable[Event]:
        """Changes after the revision `since`, oldest first. Raises Compacted."""
        if since < self.compacted_revision:
            raise Compacted(self.compacted_revision)
        newer: list[Event] = []
        for event in reversed(self._events):
            if event.item.revision <= since:
                break
            if event.item.bucket == bucket:
                newer.append(event)
        newer.reverse()
        return newer
