"""Writing to a volume while the next bytes come.

A thread is asked for about a MiB at a time: what comes from a network is a tenth of that, and to ask for each
piece takes as long as to write it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

_AT_ONCE = 1 << 20

Write = Callable[[int, list[bytes]], None]
"""Writes pieces, one behind the other, from an offset on. Raises OSError."""


class WriteBehind:
    """Gives pieces to `write` in their order; a context manager.

    All is written when the context ends, and whatever ends it, nothing is being written afterwards.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pieces: list[bytes] = []
        self._offset = 0
        self._size = 0
        self._writing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> WriteBehind:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            await self._hand_over()
            await self._written()
        elif self._writing is not None:
            await asyncio.wait({self._writing})
            self._writing.exception()  # What ended the context is what counts.

    async def add(self, piece: bytes) -> None:
        """Write `piece` soon. Raises OSError, also of an earlier one."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _AT_ONCE:
            await self._hand_over()

    async def _hand_over(self) -> None:
        await self._written()
        if self._pieces:
            pieces, offset = self._pieces, self._offset
            self._pieces, self._offset, self._size = [], offset + self._size, 0
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(None, self._write, offset, pieces)

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing})  # which a cancelled task leaves to go on
            writing, self._writing = self._writing, None
            writing.result()
