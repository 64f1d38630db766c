"""Turns at what takes much memory: a few at once, and one of each namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Row:
    """Those of one namespace."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    there: int = 0


class Turns:
    """`at_once` turns; who waits for a turn of his namespace keeps nobody else waiting."""

    def __init__(self, at_once: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._rows: dict[str, _Row] = {}

    @asynccontextmanager
    async def take(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it inside the block."""
        row = self._rows.setdefault(namespace, _Row())
        row.there += 1
        try:
            async with row.lock, self._all:
                yield
        finally:
            row.there -= 1
            if not row.there:
                del self._rows[namespace]
