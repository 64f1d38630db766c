"""One user at a time for each console and display of a guest: whoever comes later takes over.

QEMU serves one client of a socket at a time; the next one would wait, without a sign, until the first leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class _Session:
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody else takes over."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """The sessions by what they show, in the order of their beginning: the last one is the one to stay."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, list[_Session]] = {}

    def is_open(self, key: Hashable) -> bool:
        """Whether somebody uses it now."""
        return key in self._queues

    @asynccontextmanager
    async def take(self, key: Hashable) -> AsyncIterator[asyncio.Event]:
        """Begin once all earlier sessions have ended; the event given is set when this one has to end."""
        queue, session = self._queues.setdefault(key, []), _Session()
        for earlier in queue:
            earlier.ending.set()
        queue.append(session)
        try:
            while queue[0] is not session:
                await queue[queue.index(session) - 1].over.wait()
            yield session.ending
        finally:
            queue.remove(session)
            session.over.set()
            if not queue:
                del self._queues[key]
