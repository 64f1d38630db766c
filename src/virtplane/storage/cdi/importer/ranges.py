"""Ranges of an object on a web server, of which those that follow each other come in one answer.

A request for each range costs more than its bytes, here and at the server, and a connection that begins anew
is slow. So what is read in a row is asked for ahead of time: at most as much as has been read of it, so that
whoever reads here and there makes the server send little in vain.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import aiohttp

from virtplane.storage.cdi.importer.http import Web, WebObject, next_piece
from virtplane.storage.cdi.importer.streams import PIECE

_MOST_AHEAD = 64 << 20
_PASSED_OVER = PIECE
"""Bytes between two reads, such as a table between a disk's data, that are read rather than asked around."""


class TooShort(Exception):
    """The server's answer has other bytes than it was asked for."""


@dataclass(slots=True)
class _Row:
    """What is read in a row: the next byte, how many were read, and the answer that has those up to `end`."""

    position: int
    length: int
    end: int = 0
    context: AbstractAsyncContextManager[aiohttp.ClientResponse] | None = None
    content: aiohttp.StreamReader | None = None
    rest: bytes = field(default=b"", repr=False)

    def goes_on_at(self, first: int) -> bool:
        return self.position <= first <= self.position + _PASSED_OVER

    async def take(self, size: int) -> list[bytes]:
        """The next `size` bytes. Raises TooShort, aiohttp.ClientError, TimeoutError."""
        assert self.content is not None
        pieces: list[bytes] = []
        while size:
            piece = self.rest or await next_piece(self.content)
            if not piece:
                raise TooShort
            piece, self.rest = (piece[:size], piece[size:]) if len(piece) > size else (piece, b"")
            pieces.append(piece)
            size -= len(piece)
            self.position += len(piece)
            self.length += len(piece)
        return pieces

    def keep(self, byte: bytes) -> None:
        """Have the byte that was taken last be the next one again.

        nbdkit asks for a byte more than it needs: the first one of what it asks for next.
        """
        self.rest = byte + self.rest
        self.position -= 1
        self.length -= 1

    async def close(self) -> None:
        context, self.context, self.content, self.rest = self.context, None, None, b""
        if context is not None:
            await context.__aexit__(None, None, None)


class Ranges:
    """Reads the object `wanted` of `size` bytes, as long as it is what `validator` says.

    One read at a time. It must be closed.
    """

    def __init__(self, web: Web, wanted: WebObject, size: int, validator: str) -> None:
        self._web, self._wanted, self._size, self._validator = web, wanted, size, validator
        self._row: _Row | None = None
        self._alone = (-1, 0)
        """Where the last read ended that went on nowhere, and its size."""
        self._is_ahead = True
        """Whether more is asked for than is read: servers may give less than that."""

    async def read(self, first: int, last: int) -> list[bytes]:
        """The bytes from `first` to `last`, in pieces.

        Raises TooShort, ImportFailed, aiohttp.ClientError, TimeoutError, OSError.
        """
        row = await self._row_at(first) if self._is_ahead else None
        if row is None:
            self._alone = (last + 1, last + 1 - first)
            return await self._read_alone(first, last)
        try:
            await self._take(row, first - 1, last)
            pieces = await self._take(row, last, last)
        except BaseException as error:
            # A connection that broke is one thing, a server that never sends as much another.
            self._is_ahead = not isinstance(error, TooShort)
            await self.close()
            raise
        row.keep(pieces[-1][-1:])
        return pieces

    async def close(self) -> None:
        """End what is being read ahead."""
        row, self._row = self._row, None
        if row is not None:
            await row.close()

    async def _row_at(self, first: int) -> _Row | None:
        """The row that a read from `first` goes on with, or begins as the second one in it."""
        if self._row is not None and self._row.goes_on_at(first):
            return self._row
        end, size = self._alone
        if first not in (end, end - 1):
            return None
        await self.close()
        self._row = _Row(first, size, end=first)
        return self._row

    async def _take(self, row: _Row, until: int, last: int) -> list[bytes]:
        """What comes in the row up to the byte `until`, of a read up to `last`."""
        pieces: list[bytes] = []
        while row.position <= until:
            if row.position >= row.end:
                await self._ask(row, last)
            pieces += await row.take(min(until + 1, row.end) - row.position)
        return pieces

    async def _ask(self, row: _Row, last: int) -> None:
        """Have an answer from the row's next byte on, at least up to the byte `last`."""
        await row.close()
        ahead = row.position + min(row.length, _MOST_AHEAD)
        row.end = min(max(last + 1, ahead), self._size)
        context = self._web.get(self._wanted, first=row.position, last=row.end - 1, validator=self._validator)
        row.content = (await context.__aenter__()).content
        row.context = context

    async def _read_alone(self, first: int, last: int) -> list[bytes]:
        left, pieces = last + 1 - first, list[bytes]()
        async with self._web.get(self._wanted, first=first, last=last, validator=self._validator) as response:
            # A server that sends more is not read further.
            while left >= 0 and (piece := await next_piece(response.content)):
                pieces.append(piece)
                left -= len(piece)
        if left:
            raise TooShort
        return pieces
