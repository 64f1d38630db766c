"""A journal without persistence: for tests, and servers that may forget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .journal import Committed, Loaded, Row, StorageError


class MemoryJournal:
    """Reports every batch as committed in the next turn of the loop."""

    def __init__(self) -> None:
        self._queued: list[Row] = []
        self._on_committed: Committed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> Loaded:
        """Always empty."""
        return Loaded((), 0)

    def start(self, on_committed: Committed) -> None:
        """See Journal.start."""
        self._on_committed = on_committed
        self._loop = asyncio.get_running_loop()

    def append(self, row: Row) -> None:
        """See Journal.append."""
        if self._loop is None:
            raise StorageError("the journal is not started")
        if not self._queued:
            self._loop.call_soon(self._flush)
        self._queued.append(row)

    def forget(self, revisions: Sequence[int], compacted_revision: int) -> None:
        """Nothing is kept."""

    def reset(self) -> None:
        """Nothing ever fails."""

    async def close(self) -> None:
        """Report queued rows as durable."""
        self._flush()

    def _flush(self) -> None:
        batch, self._queued = self._queued, []
        if batch and self._on_committed is not None:
            self._on_committed(batch, None)
