"""Running long work on files in threads of their own."""

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
    """What `work` returns or raises, run in a thread of its own, so that no work of others waits for it.

    `work` gets a function to call now and then. When this task is cancelled, that function raises
    `Abandoned`, and the cancellation goes on once the work has ended: nobody works on the files from then on.
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
