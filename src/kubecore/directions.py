"""The two directions of a connection that is passed on: when one ends, the other does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, and end the others. Raises what one failed with.

    A broken connection (OSError) is no failure: that is how connections end.
    """
    tasks = [asyncio.create_task(direction, name="direction") for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, OSError):
            raise result
