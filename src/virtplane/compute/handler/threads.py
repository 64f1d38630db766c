"""Blocking calls, each in a thread of its own.

A pool's threads are shared: a few calls that never return (a hanging file system, a stopped daemon) would
block all later ones. Besides, Python waits for the threads of a pool when the process ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")

STEP_SECONDS = 30.0
"""How long one step of preparing a guest is waited for. On a busy node it takes seconds."""


class StepBlocked(Exception):
    """A blocking step has not ended in time. Its thread runs on; once that ends, the step can be repeated."""

    def __init__(self, step: str, seconds: float | None = None) -> None:
        waited = STEP_SECONDS if seconds is None else seconds
        super().__init__(f"{step}: the node's kernel has not answered for {waited:g} s")


async def in_thread(name: str, function: Callable[..., _Result], *arguments: object) -> _Result:
    """What `function` returns or raises. Where the caller is cancelled, the thread runs on unheeded."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(future)


class Steps:
    """The blocking steps of one guest: each in a thread of its own, and in one thread at a time.

    A step that hangs takes one thread, however often it is repeated. `on_late_end` is called when a step ends
    after its timeout.
    """

    def __init__(self, guest: str, on_late_end: Callable[[], None]) -> None:
        self._guest = guest
        self._on_late_end = on_late_end
        self._running: dict[str, asyncio.Future[Any]] = {}

    def is_blocked(self, step: str) -> bool:
        """Whether an earlier run of the step has not ended yet."""
        return step in self._running

    async def run(
        self,
        step: str,
        function: Callable[..., _Result],
        *arguments: object,
        seconds: float | None = None,
    ) -> _Result:
        """Run `function` and return or raise what it does.

        Raises StepBlocked after `seconds` (default: STEP_SECONDS), and at once while an earlier run of the
        step has not ended.
        """
        if self.is_blocked(step):
            raise StepBlocked(step)
        task = asyncio.create_task(in_thread(step, function, *arguments), name=f"{step}-{self._guest}")
        self._running[step] = task
        task.add_done_callback(lambda _: self._running.pop(step))
        # Not asyncio.timeout: a TimeoutError can be the function's own, as from a network file system.
        await asyncio.wait((task,), timeout=STEP_SECONDS if seconds is None else seconds)
        if not task.done():
            task.add_done_callback(self._ended_late)
            raise StepBlocked(step, seconds)
        return task.result()

    def _ended_late(self, task: asyncio.Future[Any]) -> None:
        if not task.cancelled():
            # Its error is not retrieved: the next run of the step shows whether it still fails.
            task.exception()
            self._on_late_end()

    async def close(self) -> None:
        """Wait for no step any more; threads that hang run on."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
