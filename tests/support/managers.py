"""Controllers at work in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubecore.runtime import Manager


def keep_running(manager: Manager) -> None:
    """Have a manager that has caches alone go on: it ends when nothing is left to run."""
    manager.add_runnable("idle", asyncio.get_running_loop().create_future)


@asynccontextmanager
async def working(manager: Manager) -> AsyncIterator[None]:
    """The controllers of `manager`, with full caches. Raises what ended them before the context did."""
    work = asyncio.create_task(manager.run(), name="manager")
    started = asyncio.create_task(manager.wait_started(), name="manager-started")
    try:
        await asyncio.wait((work, started), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            raise AssertionError("the manager has ended: nothing is left to run")
        yield
    finally:
        for task in (work, started):
            task.cancel()
        await asyncio.wait((work, started))
    if not work.cancelled():
        work.result()
