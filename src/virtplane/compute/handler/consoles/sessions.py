"""One session at a time for each console and display of a guest: a new session ends the one before.

QEMU serves one client of a socket at a time; a second client would hang until the first disconnects.
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
    """The open sessions of each console or display, oldest first: the last one stays."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, list[_Session]] = {}

    def is_open(self, key: Hashable) -> bool:
        """Whether there is a session."""
        return key in self._queues

    @asynccontextmanager
    async def take(self, key: Hashable) -> AsyncIterator[asyncio.Event]:
        """Start a session when all earlier ones have ended; the returned event is set when it must end."""
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
