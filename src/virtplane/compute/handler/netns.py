"""Running code inside a process's network namespace."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pyroute2 import netns

_Result = TypeVar("_Result")


async def run_in_network_namespace(pid: int, function: Callable[[], _Result]) -> _Result:
    """Run the blocking `function` in a thread of its own that has entered the namespace of process `pid`.

    The thread ends afterwards, so no other code ever runs in the foreign namespace. Processes that the
    function starts are inside too. Raises what the function raises, and OSError when `pid` is gone.
    """
    future: Future[_Result] = Future()

    def enter_and_run() -> None:
        try:
            descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                netns.setns(descriptor)
            finally:
                os.close(descriptor)
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=enter_and_run, name=f"netns-{pid}", daemon=True).start()
    return await asyncio.wrap_future(future)
