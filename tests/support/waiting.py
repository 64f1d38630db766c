"""Waiting for what tells nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def until(check: Callable[[], Any]) -> Any:
    """What `check` returns once it is true. Raises TimeoutError after half a minute."""
    async with asyncio.timeout(30):
        while not (found := check()):  # noqa: ASYNC110 - what is waited for here has no event
            await asyncio.sleep(0.01)
    return found
