"""Recording events, aggregated as client-go does it.

Equal events become one object with a count; many events that differ only in their message become one
"(combined from similar events)"; events of one object are rate limited. Recording never blocks and
never fails its caller: what cannot be written is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias, TypeVar

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_str
from kubecore.resources import EVENTS
from kubecore.tokenbucket import TokenBucket

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
EventKind: TypeAlias = Literal["Normal", "Warning"]

SIMILAR_EVENTS_MAXIMUM = 10
SIMILAR_EVENTS_SECONDS = 600.0
SPAM_BURST = 25
SPAM_EVENTS_PER_SECOND = 1.0 / 300.0
CACHE_SIZE = 4096
QUEUE_SIZE = 1000
WRITE_ATTEMPTS = 12
RETRY_SECONDS = 10.0
LONGEST_MESSAGE = 2048
"""Characters. What a server refuses it quotes in full, and thousands of messages are remembered."""
_CUT = " ..."


@dataclass(slots=True)
class _Similar:
    messages: set[str]
    """At most `SIMILAR_EVENTS_MAXIMUM`: more change nothing, and others may write them without end."""
    last: float


@dataclass(slots=True)
class _Known:
    name: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """What to write: a new event, or (with `count` above 1) the patch of one that exists."""

    event: JsonObject

    @property
    def is_repeat(self) -> bool:
        """Whether the event exists already, so that only count, time and message are patched."""
        return bool(self.event["count"] > 1)


class EventCorrelator:
    """Decides how to record an event: new object, higher count, combined message, or not at all."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], TokenBucket] = OrderedDict()

    def correlate(self, event: JsonObject) -> PendingEvent | None:
        """The event to write; None if events about its object are rate limited."""
        message = event["message"]
        if self._is_combined(event):
            event = {**event, "message": f"(combined from similar events): {message}"}
            key = (*_group(event), "combined")
        else:
            key = (*_group(event), message)
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            event = {
                **event,
                "metadata": {**event["metadata"], "name": known.name},
                "count": known.count,
                "firstTimestamp": known.first,
            }
        else:
            _remember(self._known, key, _Known(event["metadata"]["name"], 1, event["firstTimestamp"]))
        return None if self._is_spam(event) else PendingEvent(event)

    def written(self, event: JsonObject, name: str) -> None:
        """`event` is stored under `name` (a new one if it had to be created again)."""
        for key in ((*_group(event), event["message"]), (*_group(event), "combined")):
            known = self._known.get(key)
            if known is not None and known.name == event["metadata"]["name"]:
                known.name = name

    def _is_combined(self, event: JsonObject) -> bool:
        now = self._clock()
        group = _group(event)
        similar = self._similar.get(group)
        if similar is None or now - similar.last > SIMILAR_EVENTS_SECONDS:
            similar = _Similar(set(), now)
        if len(similar.messages) < SIMILAR_EVENTS_MAXIMUM:
            similar.messages.add(event["message"])
        similar.last = now
        _remember(self._similar, group, similar)
        return len(similar.messages) >= SIMILAR_EVENTS_MAXIMUM

    def _is_spam(self, event: JsonObject) -> bool:
        source = (*_source(event), *_involved(event))
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = TokenBucket(SPAM_EVENTS_PER_SECOND, SPAM_BURST, self._clock)
            _remember(self._buckets, source, bucket)
        return not bucket.try_take()


class EventRecorder:
    """Writes events about objects as `component`. Use as an async context manager, or run `run` as a task."""

    def __init__(self, client: Client, component: str, host: str = "") -> None:
        self._client = client
        self._component = component
        self._host = host
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue(QUEUE_SIZE)
        self._correlator = EventCorrelator(time.monotonic)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EventRecorder:
        self._task = asyncio.create_task(self.run(), name=f"events-{self._component}")
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.flush()
        finally:
            # Also when this is cancelled while it flushes.
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    def event(
        self, obj: JsonObject, kind: EventKind, reason: str, message: str, field_path: str = ""
    ) -> None:
        """Record that something happened to `obj` (which must carry kind and apiVersion)."""
        pending = self._correlator.correlate(self._build(obj, kind, reason, message, field_path))
        if pending is None:
            return
        try:
            self._queue.put_nowait(pending)
        except asyncio.QueueFull:
            logger.warning("event queue is full; dropped event %s: %s", reason, message)

    async def run(self) -> None:
        """Write recorded events until cancelled."""
        while True:
            pending = await self._queue.get()
            try:
                await self._write(pending)
            except Exception:
                # One event, such as one whose message JSON cannot hold, must not end those of the component.
                logger.exception("event %s cannot be written; dropped", pending.event["reason"])
            finally:
                self._queue.task_done()

    async def flush(self, timeout_seconds: float = 2.0) -> None:
        """Wait until all recorded events are written, but not for long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._queue.join()
        except TimeoutError:
            logger.warning("%d events were not written before the timeout", self._queue.qsize())

    def _build(
        self, obj: JsonObject, kind: EventKind, reason: str, message: str, field_path: str
    ) -> JsonObject:
        metadata = obj.get("metadata") or {}
        namespace = get_str(metadata, "namespace")
        reference = {
            "kind": get_str(obj, "kind"),
            "namespace": namespace,
            "name": get_str(metadata, "name"),
            "uid": get_str(metadata, "uid"),
            "apiVersion": get_str(obj, "apiVersion"),
            "resourceVersion": get_str(metadata, "resourceVersion"),
            "fieldPath": field_path,
        }
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        source = {"component": self._component, **({"host": self._host} if self._host else {})}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{reference['name']}.{time.time_ns():x}",
                "namespace": namespace or "default",
            },
            "involvedObject": {key: value for key, value in reference.items() if value},
            "reason": reason,
            "message": _bounded(message),
            "source": source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }

    async def _write(self, pending: PendingEvent) -> None:
        for attempt in range(WRITE_ATTEMPTS):
            try:
                await self._write_once(pending)
            except StatusError as error:
                # The namespace may be terminating, or the event be invalid: a retry cannot help.
                logger.debug(
                    "the API server refused event %s; not retried: %s", pending.event["reason"], error.message
                )
            except ConnectionFailed as error:
                if attempt + 1 < WRITE_ATTEMPTS:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                logger.warning("event %s could not be written; dropped: %s", pending.event["reason"], error)
            return

    async def _write_once(self, pending: PendingEvent) -> None:
        event = pending.event
        namespace = event["metadata"]["namespace"]
        if pending.is_repeat:
            changed = {key: event[key] for key in ("count", "lastTimestamp", "message")}
            name = event["metadata"]["name"]
            try:
                await self._client.patch(EVENTS, name, changed, namespace, type="strategic")
            except StatusError as error:
                if error.code != 404:
                    raise
            else:
                return
            name = f"{event['involvedObject']['name']}.{time.time_ns():x}"
            self._correlator.written(event, name)
            event = {**event, "metadata": {**event["metadata"], "name": name}}
        await self._client.create(EVENTS, event, namespace)


def _bounded(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    return message[: LONGEST_MESSAGE - len(_CUT)] + _CUT


def _source(event: JsonObject) -> tuple[str, ...]:
    return get_str(event, "source", "component"), get_str(event, "source", "host")


def _involved(event: JsonObject) -> tuple[str, ...]:
    return tuple(
        get_str(event, "involvedObject", part) for part in ("kind", "namespace", "name", "uid", "apiVersion")
    )


def _group(event: JsonObject) -> tuple[str, ...]:
    """What events must share to count as similar."""
    field_path = get_str(event, "involvedObject", "fieldPath")
    return (*_source(event), *_involved(event), field_path, event["type"], event["reason"])


def _remember(cache: OrderedDict[tuple[str, ...], Value], key: tuple[str, ...], value: Value) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > CACHE_SIZE:
        cache.popitem(last=False)
