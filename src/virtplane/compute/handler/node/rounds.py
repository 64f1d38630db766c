"""When virt-handler looks at something of its node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable


class Rounds:
    """Looks again and again, and soon after somebody asked for it: the configuration may have changed."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()

    def look_again(self) -> None:
        """Have the next round begin soon."""
        self._wake.set()

    async def run(self, look: Callable[[], Awaitable[float | None]]) -> None:
        """Call `look` until cancelled. It gives the seconds until the next round; None: wait to be asked."""
        while True:
            self._wake.clear()
            pause = await look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
