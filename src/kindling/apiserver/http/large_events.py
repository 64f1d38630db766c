"""Sending large watch events to many watchers with bounded buffers.

An event is encoded once for all watchers, but every connection encrypts a copy of its own. A thousand
watchers of a 1 MiB object would take 1 GiB of buffers, most of it for watchers that do not read.
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
    """Sends large events in chunks, to a limited number of watchers at a time, first come first served."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._sending: dict[_Sending, None] = {}
        self._next = asyncio.Lock()
        self._released = asyncio.Event()

    async def send(self, connection: Connection, transport: asyncio.Transport, data: bytes) -> None:
        """Write `data` as the client reads; returns early when it disconnects."""
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
                # Other tasks run between the encryption of two chunks.
                await asyncio.sleep(0)
                await connection.writable.wait()
            whole = True
        finally:
            if not whole:
                transport.abort()  # abort: a truncated event must not look complete
            del self._sending[sending]
            self._released.set()

    async def _make_room(self) -> None:
        """Wait for a free place; a watcher that takes too long is disconnected and may resume its watch."""
        self._released.clear()
        oldest = next(iter(self._sending))
        try:
            async with asyncio.timeout_at(oldest.since + _PATIENCE_SECONDS):
                await self._released.wait()
        except TimeoutError:
            oldest.transport.abort()
            await self._released.wait()
