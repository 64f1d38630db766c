"""Controllers: keys in, one of three results out.

A reconciler is level-triggered: it looks at the state of the object, not at what changed. It ends with
`DONE`, with `RequeueAfter(seconds)`, or by an exception; only this module retries, backs off and logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError, is_lost_race, is_namespace_terminating
from kubecore.json import JsonObject
from kubecore.runtime.informer import EventType, Informer
from kubecore.runtime.queue import QueueShutDown, WorkQueue
from kubecore.runtime.queuemetrics import QueueMetrics
from kubecore.runtime.store import Cached, Key, TypedObject, key_of

logger = logging.getLogger(__name__)

_LONGEST_FAILURE = 1000
"""Characters that are remembered of each failure: what a server refuses it quotes in full."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Reconcile the key again in `seconds`, even if nothing changes."""

    seconds: float


DONE = Done()
Result: TypeAlias = Done | RequeueAfter
Reconcile: TypeAlias = Callable[[Key], Awaitable[Result]]
Mapper: TypeAlias = Callable[[Cached], Iterable[Key]]
"""From a changed object to the keys that must be looked at because of it."""


def own_key(obj: JsonObject | TypedObject) -> Iterable[Key]:
    """Maps an object to its own key."""
    return (key_of(obj),)


class Controller:
    """Calls `reconcile` for the keys from the watched informers, one call at a time per key."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        workers: int = 1,
        *,
        max_delay: float = 1000.0,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._max_delay = max_delay
        self._queue: WorkQueue[Key] | None = None
        self._metrics: QueueMetrics | None = None
        self._informers: list[Informer[Any]] = []
        self._early: dict[Key, None] = {}
        self._early_delayed: dict[Key, float] = {}
        self._failures: dict[Key, str] = {}

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """The informers that must have synced before work starts."""
        return self._informers

    def watch(
        self,
        informer: Informer[Cached],
        mapper: Mapper[Cached] = own_key,
        predicate: Callable[[EventType, Cached | None, Cached], bool] | None = None,
    ) -> None:
        """Enqueue what `mapper` says for every change; both the old and the new state are mapped.

        Changes for which `predicate` is false are left out. Without a mapper, objects that cannot be decoded
        are enqueued as well: their controller decides how to handle them.
        """
        self.depend(informer)
        if mapper is own_key:
            informer.add_unfit_handler(self.enqueue)

        def enqueue(event: EventType, old: Cached | None, new: Cached) -> None:
            if predicate is not None and not predicate(event, old, new):
                return
            keys = dict.fromkeys(mapper(new))
            if old is not None:
                keys.update(dict.fromkeys(mapper(old)))
            for key in keys:
                self.enqueue(key)

        informer.add_handler(enqueue)

    def depend(self, informer: Informer[Any]) -> None:
        """Wait for `informer` to sync before working, without enqueueing keys from it."""
        if informer not in self._informers:
            self._informers.append(informer)

    def failure(self, key: Key) -> str:
        """Why the last attempt at `key` failed, which is tried again; empty where it did not."""
        return self._failures.get(key, "")

    def measure(self, metrics: QueueMetrics) -> None:
        """Tell in `metrics` of the work queue, under the controller's name. Before `run`."""
        self._metrics = metrics

    def enqueue(self, key: Key) -> None:
        """Add `key` to the work queue. Allowed before `run`, too."""
        if self._queue is None:
            self._early[key] = None
        else:
            self._queue.add(key)

    def enqueue_after(self, key: Key, seconds: float) -> None:
        """Add `key` to the work queue in `seconds`."""
        if self._queue is None:
            self._early_delayed[key] = min(seconds, self._early_delayed.get(key, seconds))
        else:
            self._queue.add_after(key, seconds)

    async def run(self) -> None:
        """Wait for the caches, then work until cancelled."""
        observer = self._metrics.observer(self.name) if self._metrics is not None else None
        queue: WorkQueue[Key] = WorkQueue(max_delay=self._max_delay, observer=observer)
        self._queue = queue
        for key in self._early:
            queue.add(key)
        for key, seconds in self._early_delayed.items():
            queue.add_after(key, seconds)
        self._early.clear()
        self._early_delayed.clear()
        with ExitStack() as shown:
            if self._metrics is not None:
                shown.enter_context(self._metrics.shown(self.name, queue))
            try:
                for informer in self._informers:
                    await informer.wait_synced()
                async with asyncio.TaskGroup() as group:
                    for number in range(self._workers):
                        group.create_task(self._work(queue), name=f"{self.name}-{number}")
            finally:
                queue.shut_down()
                self._queue = None

    async def _work(self, queue: WorkQueue[Key]) -> None:
        while True:
            try:
                key = await queue.get()
            except QueueShutDown:
                return
            try:
                await self._process(queue, key)
            finally:
                queue.done(key)

    async def _process(self, queue: WorkQueue[Key], key: Key) -> None:
        result: Result | None = None
        failure = "an internal error, see the log"
        try:
            result = await self._reconcile(key)
        except StatusError as error:
            if is_namespace_terminating(error):
                # Nothing can be created in a terminating namespace; deletions enqueue their keys again.
                result = DONE
            failure = error.message
            # A concurrent write: the retry will find it in the cache.
            is_expected = result is not None or error.code == 409 or is_lost_race(error)
            level = logging.DEBUG if is_expected else logging.WARNING
            logger.log(level, "%s: %s failed: %s", self.name, _text(key), error.message)
        except ConnectionFailed as error:
            failure = str(error)
            logger.warning("%s: %s failed: %s", self.name, _text(key), error)
        except Exception:
            logger.exception("%s: %s failed", self.name, _text(key))
        if result is None:
            self._failures[key] = failure[:_LONGEST_FAILURE]
            queue.add_rate_limited(key)
        else:
            self._failures.pop(key, None)
            queue.forget(key)
            if isinstance(result, RequeueAfter):
                queue.add_after(key, result.seconds)


def _text(key: Key) -> str:
    return f"{key[0]}/{key[1]}" if key[0] else key[1]
