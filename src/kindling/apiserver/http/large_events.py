"""Big events on their way to many watchers: how much may lie in buffers at once.

An event is encoded once for all watchers, but every connection encrypts a copy of its own. A thousand
watchers of an object of one megabyte would take a gigabyte, most of it for those that do not read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .connection import Connection

BIG_BYTES = 32 * 1024
"""Smaller events are written at once."""
_HIGH_WATER_BYTES = 16 * 1024
_AT_ONCE = 32
"""Each may hold some 200 KiB in the two buffers of its transport."""
_PATIENCE_SECONDS = 1.0
"""How long a watcher may take for one event while others wait for theirs."""


@dataclass(slots=True, eq=False)
class _Sending:
    transport: asyncio.Transport
    since: float


class LargeEventSender:
    """Lets big events out in pieces, to a limited number of watchers at once, in the order they ask."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._sending: dict[_Sending, None] = {}
        self._next = asyncio.Lock()
        self._released = asyncio.Event()

    async def send(self, connection: Connection, transport: asyncio.Transport, data: bytes) -> None:
        """Write `data` as the client reads; ends early when it is gone."""
        async with self._next:
            while len(self._sending) >= self._at_once:
                await self._make_room()
            sending = _Sending(transport, asyncio.get_running_loop().time())
            self._sending[sending] = None
        whole = False
        try:
            transport.set_write_buffer_limits(_HIGH_WATER_BYTES)
            view = memoryview(data)
            for start in range(0, len(data), BIG_BYTES):
                if transport.is_closing():
                    return
                transport.write(view[start : start + BIG_BYTES])
                # Others shall have a turn between two pieces of encryption.
                await asyncio.sleep(0)
                await connection.writable.wait()
            whole = True
        finally:
            if not whole:
                transport.abort()  # the client must not take a part of an event for the whole
            del self._sending[sending]
            self._released.set()

    async def _make_room(self) -> None:
        """Wait until somebody is done; who takes too long is cut off, and may resume where it was."""
        self._released.clear()
        oldest = next(iter(self._sending))
        try:
            async with asyncio.timeout_at(oldest.since + _PATIENCE_SECONDS):
                await self._released.wait()
        except TimeoutError:
            oldest.transport.abort()
            await self._released.wait()
