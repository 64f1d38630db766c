"""Workers that are told to end.

The first process of a container ignores SIGTERM unless it handles it: the pod of a volume that is deleted
would stay for all of its grace period.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")

EXIT_CODE = 128 + signal.SIGTERM
"""Of a worker that was ended: not success, so that a pod that stays tries again."""


class Ended(Exception):
    """The process was told to end, and what it did has been undone."""


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work`, which SIGTERM cancels. Raises Ended, what `work` raises."""

    async def cancellable() -> _Result:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError as error:
        raise Ended from error
