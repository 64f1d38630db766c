"""A client of an NBD server at a Unix socket that reads, and nothing else."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from virtplane.storage.cdi.importer.outcome import ImportFailed

_GREETING = b"NBDMAGICIHAVEOPT"
_FIXED_NEWSTYLE, _NO_ZEROES = 1, 2
_EXPORT_NAME = 1
_REQUEST, _REPLY = 0x25609513, 0x67446698
_READ = 0


class NbdReader:
    """The default export of a server. One read at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.size = 0
        """In bytes."""

    async def begin(self) -> None:
        """Agree with the server. Raises ImportFailed, OSError."""
        greeting = await self._exactly(18)
        if greeting[:16] != _GREETING:
            raise ImportFailed("Unable to process data: the NBD server does not greet")
        flags = int.from_bytes(greeting[16:], "big") & (_FIXED_NEWSTYLE | _NO_ZEROES)
        self._writer.write(struct.pack(">I", flags))
        self._writer.write(b"IHAVEOPT" + struct.pack(">II", _EXPORT_NAME, 0))
        size, _ = struct.unpack(">QH", await self._exactly(10))
        if not flags & _NO_ZEROES:
            await self._exactly(124)
        self.size = size

    async def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`. Raises ImportFailed, OSError."""
        self._writer.write(struct.pack(">IHHQQI", _REQUEST, 0, _READ, 1, offset, length))
        magic, error, _ = struct.unpack(">IIQ", await self._exactly(16))
        if magic != _REPLY or error:
            raise ImportFailed(
                f"Unable to process data: reading at offset {offset} failed with error {error}"
            )
        return await self._exactly(length)

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise ImportFailed("Unable to process data: the NBD server has ended") from error


@asynccontextmanager
async def nbd_reader(socket: Path) -> AsyncIterator[NbdReader]:
    """A connection that ends with the context. Raises ImportFailed, OSError."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        client = NbdReader(reader, writer)
        await client.begin()
        yield client
    finally:
        writer.close()
