"""Watches: events written directly to the connection, encoded once for all watchers of one form."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import orjson
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject

from ..registry import encoding
from ..registry.definition import ResourceDefinition
from ..registry.reads import Matcher
from ..registry.registry import Registry
from ..storage.store import ADDED, DELETED, MODIFIED, Compacted, Event, Item
from .connection import Connection
from .large_events import BIG_BYTES, LargeEventSender

_MAX_BACKLOG_BYTES = 4 * 1024 * 1024
_MIN_BACKLOG_EVENTS = 16
"""A watcher that lets more than both pile up is cut off; it resumes from where it was."""
_BOOKMARK_SECONDS = 60.0
_BOOKMARK_BEFORE_END_SECONDS = 2.0
_MIN_TIMEOUT_SECONDS = 1800

Render = Callable[[Item, str], Awaitable[bytes]]
"""(item, event type) -> the object of an event, encoded."""


@dataclass(slots=True)
class WatchQuery:
    """The ListOptions of a watch."""

    resource_version: str = ""
    timeout_seconds: float = 0
    bookmarks: bool = False
    send_initial_events: bool | None = None
    prefix: str = ""
    """Path prefix: ``namespace/`` or empty."""


def frame(event_type: str, body: bytes) -> bytes:
    """One event as a chunk of a chunked response."""
    line = b'{"type":"%b","object":%b}\n' % (event_type.encode(), body)
    return b"%x\r\n%b\r\n" % (len(line), line)


def seen_as(event: Event, wanted: Matcher) -> tuple[str, Item] | None:
    """The event that a watcher with a selector gets for a change: None, or type and object."""
    if wanted.everything:
        return event.type, event.item
    now = event.type != DELETED and wanted.matches(event.item)
    before = event.previous is not None and wanted.matches(event.previous)
    if event.type == DELETED:
        return (DELETED, event.item) if before else None
    if now:
        return (MODIFIED if before else ADDED), event.item
    return (DELETED, departed(event)) if before else None


def departed(event: Event) -> Item:
    """The object as the watcher last saw it, with the revision in which it left the selection."""
    if event.departed is None and event.previous is not None:
        previous = event.previous
        document = previous.document()
        document["metadata"]["resourceVersion"] = str(event.item.revision)
        event.departed = Item(
            previous.bucket,
            previous.path,
            encoding.encode(document),
            event.item.revision,
            previous.created_revision,
        )
    return event.departed or event.item


@dataclass(frozen=True, slots=True)
class Shape:
    """The format of a watch's objects. `render` is None for plain JSON in the definition's own version."""

    head: bytes
    """The common prefix of encodings in that version."""
    render: Render | None
    frame_key: object
    """Watches with equal keys send the same bytes for an event."""
    bookmark: Callable[[int, JsonObject], bytes]


class Watch:
    """One watcher's connection."""

    def __init__(
        self,
        registry: Registry,
        definition: ResourceDefinition,
        query: WatchQuery,
        wanted: Matcher,
        shape: Shape,
        large_events: LargeEventSender,
    ) -> None:
        self._registry = registry
        self._definition = definition
        self._query = query
        self._wanted = wanted
        self._shape = shape
        self._large_events = large_events
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._late: asyncio.Queue[Event] = asyncio.Queue()
        """Events that must wait for a conversion, or for the client to read; all others queue up behind
        them. They are shared with other watchers, unlike what lies in a connection's buffers."""
        self._late_bytes = 0
        self._converting = False
        self._sent_revision = 0
        self._after = 0
        """Only what is newer is shown, also to watchers from a revision that is not there yet."""
        self._ended = asyncio.Event()

    def ended(self) -> None:
        """The connection is gone."""
        self._ended.set()

    async def run(self, response: web.StreamResponse, request: web.BaseRequest) -> None:
        """Serve until the timeout or until the client disconnects. The headers of `response` are sent.

        Raises StatusError for an object that cannot be converted.
        """
        self._transport = request.transport
        if isinstance(request.protocol, Connection):
            self._connection = request.protocol
        store = self._registry.store
        bucket = self._definition.storage_prefix
        unsubscribe: Callable[[], None] | None = None
        try:
            try:
                initial = self._candidates()
            except Compacted as error:
                self._expire(error)
                return
            revision = store.revision
            # From here on, new events are queued until the initial ones are sent.
            self._converting = True
            unsubscribe = store.subscribe(bucket, self._on_event)
            await self._send_initial(initial, revision)
            worker = asyncio.create_task(self._send_late(), name="watch-late-events")
            worker.add_done_callback(lambda _: self.ended())
            try:
                await self._until_over()
            finally:
                worker.cancel()
                await asyncio.wait({worker})
            if not worker.cancelled():
                worker.result()
        finally:
            if unsubscribe is not None:
                unsubscribe()

    def _candidates(self) -> list[Item | Event]:
        """The initial events before selection: current objects, or the history since the requested
        version.
        """
        query, store = self._query, self._registry.store
        bucket = self._definition.storage_prefix
        since = int(query.resource_version or 0)
        wants_state = query.send_initial_events
        if wants_state is None:
            wants_state = since == 0
        if wants_state:
            return list(store.list(bucket, query.prefix).items)
        if since == 0:
            return []
        self._after = since
        return [event for event in store.history(bucket, since) if event.item.path.startswith(query.prefix)]

    async def _chosen(self, candidates: Sequence[Item | Event]) -> list[tuple[str, Item]]:
        """The initial events that match the watcher's selectors."""
        wanted = self._wanted
        if wanted.is_converting:
            items = [each if isinstance(each, Item) else each.item for each in candidates]
            items += [each.previous for each in candidates if isinstance(each, Event) and each.previous]
            await wanted.prepare(self._registry, items)
        found: list[tuple[str, Item]] = []
        for each in candidates:
            if isinstance(each, Event):
                seen = seen_as(each, wanted)
                if seen is not None:
                    found.append(seen)
            elif wanted.matches(each):
                found.append((ADDED, each))
        return found

    async def _send_initial(self, candidates: list[Item | Event], revision: int) -> None:
        for event_type, item in await self._chosen(candidates):
            await self._send_item(event_type, item, None)
        if self._query.send_initial_events and self._query.bookmarks:
            annotations = {"k8s.io/initial-events-end": "true"}
            self._write(frame("BOOKMARK", self._shape.bookmark(revision, {"annotations": annotations})))
        self._sent_revision = revision

    def _on_event(self, event: Event) -> None:
        """Write a committed change now, or queue it while earlier events are being sent."""
        if not event.item.path.startswith(self._query.prefix) or event.item.revision <= self._after:
            return
        is_blocked = self._connection is not None and not self._connection.writable.is_set()
        if self._converting or is_blocked or self._wanted.is_converting:
            self._delay(event)
            return
        seen = seen_as(event, self._wanted)
        if seen is None:
            return
        event_type, item = seen
        is_small = len(item.value) < BIG_BYTES
        if is_small and self._shape.render is None and item.value.startswith(self._shape.head):
            key = (self._shape.frame_key, event_type, item is event.item)
            data = event.frames.get(key)
            if data is None:
                data = event.frames[key] = frame(event_type, item.value)
            self._write(data)
            return
        self._delay(event)

    def _delay(self, event: Event) -> None:
        """Queue an event that cannot be written now."""
        self._converting = True
        self._late.put_nowait(event)
        self._late_bytes += len(event.item.value)
        if self._late_bytes > _MAX_BACKLOG_BYTES and self._late.qsize() > _MIN_BACKLOG_EVENTS:
            self._cut_off()

    async def _send_late(self) -> None:
        """Send queued events in order; once the queue is empty, events are written directly again."""
        while True:
            if self._late.empty():
                self._converting = False
            event = await self._late.get()
            self._late_bytes -= len(event.item.value)
            self._converting = True
            for event_type, item in await self._chosen([event]):
                await self._send_item(event_type, item, event)

    async def _send_item(self, event_type: str, item: Item, event: Event | None) -> None:
        key = (self._shape.frame_key, event_type, event is not None and item is event.item)
        data = event.frames.get(key) if event is not None else None
        if data is None:
            if self._shape.render is not None:
                body = await self._shape.render(item, event_type)
            elif item.value.startswith(self._shape.head):
                body = item.value
            else:
                body = (await self._registry.values(self._definition, [item]))[0]
            data = frame(event_type, body)
            if event is not None:
                event.frames[key] = data
        await self._write_when_read(data)

    async def _write_when_read(self, data: bytes) -> None:
        """Write when the client has read what was written before."""
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            self._write(data)
            return
        if not connection.writable.is_set():
            await connection.writable.wait()
        if len(data) < BIG_BYTES:
            self._write(data)
        elif not transport.is_closing():
            await self._large_events.send(connection, transport, data)

    def _cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._ended.set()

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            self._ended.set()
            return
        transport.write(data)

    def _expire(self, error: Compacted) -> None:
        message = f"too old resource version: {self._query.resource_version} ({error.oldest})"
        self._write(frame("ERROR", orjson.dumps(errors.expired(message).to_status())))

    async def _until_over(self) -> None:
        """Wait for the end; send bookmarks on the way and shortly before it."""
        loop = asyncio.get_running_loop()
        seconds = self._query.timeout_seconds or _MIN_TIMEOUT_SECONDS * (1 + random.random())
        end = loop.time() + seconds
        last_call = end - _BOOKMARK_BEFORE_END_SECONDS
        while not self._ended.is_set():
            now = loop.time()
            if now >= end:
                return
            pause = end - now
            if self._query.bookmarks:
                pause = min(_BOOKMARK_SECONDS, last_call - now if now < last_call else pause)
            try:
                await asyncio.wait_for(self._ended.wait(), pause)
            except TimeoutError:
                if self._query.bookmarks and loop.time() < end - 0.001 and not self._converting:
                    self._write(frame("BOOKMARK", self._shape.bookmark(self._registry.store.revision, {})))
