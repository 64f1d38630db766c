"""The work queue: client-go's promises, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubecore.runtime import QueueShutDown, WorkQueue
from kubecore.runtime.queue import ItemBackoff
from kubecore.tokenbucket import TokenBucket

pytestmark = pytest.mark.looptime


async def test_items_come_in_order_and_only_once_while_they_wait() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for item in ("a", "b", "a"):
        queue.add(item)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_an_item_added_while_it_is_worked_on_comes_back_when_that_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    item = await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done(item)
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_waiting_worker_gets_the_next_item() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    queue.add("a")
    assert await waiting == "a"


async def test_a_cancelled_worker_loses_no_item() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    async with asyncio.timeout(5):
        assert await second == "a"


async def test_of_several_delays_the_shortest_counts() -> None:
    loop = asyncio.get_running_loop()
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 5)
    started = loop.time()
    assert await queue.get() == "a"
    queue.done("a")
    assert loop.time() - started == pytest.approx(3)
    await asyncio.sleep(20)
    assert (len(queue), queue.delayed) == (0, 0)


async def test_failures_back_off_exponentially_until_forgotten() -> None:
    backoff: ItemBackoff[str] = ItemBackoff()
    delays = [backoff.next_delay("a") for _ in range(20)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1000.0
    assert backoff.next_delay("b") == 0.005
    backoff.forget("a")
    assert (backoff.failures("a"), backoff.next_delay("a")) == (0, 0.005)


async def test_the_bucket_limits_all_items_together() -> None:
    clock = [0.0]
    bucket = TokenBucket(10, 100, lambda: clock[0])
    assert [bucket.reserve() for _ in range(100)] == [0.0] * 100
    assert bucket.reserve() == pytest.approx(0.1)
    assert bucket.reserve() == pytest.approx(0.2)
    clock[0] = 100.0
    assert bucket.reserve() == 0.0
    assert bucket.try_take()


async def test_rate_limited_items_come_after_their_backoff() -> None:
    loop = asyncio.get_running_loop()
    queue: WorkQueue[str] = WorkQueue()
    waits = []
    for _ in range(4):
        started = loop.time()
        queue.add_rate_limited("a")
        queue.done(await queue.get())
        waits.append(round(loop.time() - started, 3))
    assert waits == [0.005, 0.01, 0.02, 0.04]
    assert queue.failures("a") == 4
    queue.forget("a")
    assert queue.failures("a") == 0


async def test_shut_down_drains_and_then_ends_workers() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add_after("b", 1)
    queue.shut_down()
    queue.add("c")
    assert await queue.get() == "a"
    with pytest.raises(QueueShutDown):
        await queue.get()
