"""Blocking calls, each in a thread of its own.

A pool's threads are shared: a few calls that never return (a file system that hangs, a daemon that is
stopped) would have all later ones wait. And a pool's threads are waited for when the process ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


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
