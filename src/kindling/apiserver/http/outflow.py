"""Big events on their way to many watchers: how much may lie in buffers at once.

An event is encoded once for all watchers, but every connection encrypts a copy of its own. A thousand
watchers of an object of one megabyte would take a gigabyte, most of it for those that do not read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from .connection import Connection

BIG_BYTES = 64 * 1024
"""Smaller events are written at once: connections buffer that much anyway."""
_MAX_BUFFERED_BYTES = 32 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
"""How long a watcher may take for one event while others wait for theirs."""


@dataclass(slots=True, eq=False)
class _Sending:
    transport: asyncio.Transport
    size: int
    since: float


class Outflow:
    """Lets big events out, as many at once as there is room for, in the order in which they ask."""

    def __init__(self, max_buffered_bytes: int = _MAX_BUFFERED_BYTES) -> None:
        self._max_bytes = max_buffered_bytes
        self._bytes = 0
        self._sending: dict[_Sending, None] = {}
        self._next = asyncio.Lock()
        self._released = asyncio.Event()

    async def send(self, connection: Connection, transport: asyncio.Transport, data: bytes) -> None:
        """Write `data` when there is room, and wait until the client has taken most of it (or is gone)."""
        async with self._next:
            while self._bytes and self._bytes + len(data) > self._max_bytes:
                await self._make_room()
            if transport.is_closing():
                return
            sending = _Sending(transport, len(data), asyncio.get_running_loop().time())
            self._sending[sending] = None
            self._bytes += len(data)
        try:
            transport.write(data)
            # Others shall have a turn between two big pieces of encryption.
            await asyncio.sleep(0)
            await connection.writable.wait()
        finally:
            del self._sending[sending]
            self._bytes -= len(data)
            self._released.set()

    async def _make_room(self) -> None:
        """Wait until somebody is done; who takes too long is cut off, and may resume where it was."""
        self._released.clear()
        oldest = next(iter(self._sending))
        due = oldest.since + _PATIENCE_SECONDS
        try:
            async with asyncio.timeout_at(due):
                await self._released.wait()
        except TimeoutError:
            oldest.transport.abort()
            await self._released.wait()
