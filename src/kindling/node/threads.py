"""Running long file operations, each in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class Abandoned(Exception):
    """The task that waits for the work was cancelled."""


async def in_thread(name: str, work: Callable[[Callable[[], None]], _T]) -> _T:
    """Run `work` in a thread of its own, so that it delays no other work, and return or raise what it does.

    `work` is passed a function that it must call regularly. When this task is cancelled, that function raises
    `Abandoned`; the cancellation goes on when the thread has ended, so that the thread no longer touches the
    files.
    """
    unwanted = threading.Event()

    def check() -> None:
        if unwanted.is_set():
            raise Abandoned

    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    running = asyncio.get_running_loop().run_in_executor(executor, work, check)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        unwanted.set()
        await asyncio.wait([running])
        raise
    finally:
        executor.shutdown(wait=False)
