"""The work queue of controllers, with client-go's semantics, and its rate limits.

An item is handed to one worker at a time. Adding it while it waits changes nothing; adding it while it
is worked on brings it back once that work is done.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from kubecore.tokenbucket import TokenBucket

Item = TypeVar("Item", bound=Hashable)


class QueueShutDown(Exception):
    """The queue is shut down and drained: workers stop."""


class ItemBackoff(Generic[Item]):
    """Exponential delays per item: `base` seconds, doubled by every failure, at most `maximum`."""

    def __init__(self, base: float = 0.005, maximum: float = 1000.0) -> None:
        self._base = base
        self._maximum = maximum
        self._failures: dict[Item, int] = {}

    def next_delay(self, item: Item) -> float:
        """Count a failure of `item` and return the delay in seconds before its next attempt."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        # Beyond 2**60 the power would overflow a float long after the maximum is reached.
        return float(min(self._base * 2 ** min(failures, 60), self._maximum))

    def failures(self, item: Item) -> int:
        """How often `item` failed since it was last forgotten."""
        return self._failures.get(item, 0)

    def forget(self, item: Item) -> None:
        """`item` succeeded: its next failure starts from the base again."""
        self._failures.pop(item, None)


class QueueObserver(Protocol):
    """Told of what becomes of the items of a queue, for its metrics."""

    def added(self) -> None:
        """An item was added that did not wait yet."""

    def retried(self) -> None:
        """An item was added for a later time."""

    def waited(self, amount: float, /) -> None:
        """An item was handed to a worker after so many seconds."""

    def worked(self, amount: float, /) -> None:
        """The work on an item has ended after so many seconds."""


class WorkQueue(Generic[Item]):
    """The work queue. Bound to the event loop in which it is created."""

    def __init__(
        self,
        *,
        base_delay: float = 0.005,
        max_delay: float = 1000.0,
        rate: float = 10.0,
        burst: int = 100,
        observer: QueueObserver | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._order: deque[Item] = deque()
        self._dirty: dict[Item, float] = {}
        """Items that wait, also for the end of the work on them, and when they were added."""
        self._processing: dict[Item, float] = {}
        """Items that are worked on, and since when."""
        self._observer = observer
        self._waiting: list[tuple[float, int, Item]] = []
        self._due: dict[Item, float] = {}
        self._sequence = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._backoff: ItemBackoff[Item] = ItemBackoff(base_delay, max_delay)
        self._bucket = TokenBucket(rate, burst, self._loop.time)

    def __len__(self) -> int:
        """The number of items ready for a worker, without delayed ones."""
        return len(self._order)

    @property
    def delayed(self) -> int:
        """How many items were added with a delay that has not passed."""
        return len(self._due)

    @property
    def depth(self) -> int:
        """The number of items that wait, also those that are still worked on."""
        return len(self._dirty)

    def running_seconds(self) -> list[float]:
        """For how long each item that is worked on has been."""
        now = self._loop.time()
        return [now - begun for begun in list(self._processing.values())]

    def add(self, item: Item) -> None:
        """Queue `item`; an item in work is queued again afterwards."""
        if self._closed or item in self._dirty:
            return
        self._dirty[item] = self._loop.time()
        if self._observer is not None:
            self._observer.added()
        if item not in self._processing:
            self._order.append(item)
            self._wake()

    def add_after(self, item: Item, seconds: float) -> None:
        """Add `item` in `seconds`; of several delays the earliest counts."""
        if self._closed:
            return
        if self._observer is not None:
            self._observer.retried()
        if seconds <= 0:
            self.add(item)
            return
        due = self._loop.time() + seconds
        if item in self._due and self._due[item] <= due:
            return
        self._due[item] = due
        heapq.heappush(self._waiting, (due, next(self._sequence), item))
        self._schedule()

    def add_rate_limited(self, item: Item) -> None:
        """Add `item` when both its own back-off and the queue's rate allow."""
        self.add_after(item, max(self._backoff.next_delay(item), self._bucket.reserve()))

    def forget(self, item: Item) -> None:
        """`item` succeeded: reset its back-off."""
        self._backoff.forget(item)

    def failures(self, item: Item) -> int:
        """How often `item` was added rate limited since it was forgotten."""
        return self._backoff.failures(item)

    async def get(self) -> Item:
        """Wait for the next item; call `done` after the work. Raises QueueShutDown at the end."""
        while not self._order:
            if self._closed:
                raise QueueShutDown
            getter: asyncio.Future[None] = self._loop.create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # Pass a wake-up that arrived together with the cancellation on to another worker.
                if getter.done() and not getter.cancelled() and self._order:
                    self._wake()
                raise
            finally:
                if getter in self._getters:
                    self._getters.remove(getter)
        item = self._order.popleft()
        now = self._loop.time()
        added = self._dirty.pop(item)
        self._processing[item] = now
        if self._observer is not None:
            self._observer.waited(now - added)
        return item

    def done(self, item: Item) -> None:
        """The work on `item` has ended, successfully or not."""
        begun = self._processing.pop(item, None)
        if self._observer is not None and begun is not None:
            self._observer.worked(self._loop.time() - begun)
        if item in self._dirty:
            self._order.append(item)
            self._wake()

    def shut_down(self) -> None:
        """Accept no more items; `get` returns the queued ones and then raises."""
        self._closed = True
        self._waiting.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._due.get(self._waiting[0][2]) != self._waiting[0][0]:
            heapq.heappop(self._waiting)
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._release)

    def _release(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            due, _, item = heapq.heappop(self._waiting)
            if self._due.get(item) == due:
                del self._due[item]
                self.add(item)
        self._schedule()
