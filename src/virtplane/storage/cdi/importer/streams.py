"""Bytes on their way from a source: looked at, counted, hashed, decompressed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Protocol

from virtplane.storage.cdi.importer.formats import HEAD_BYTES, Compression, Kind, recognise
from virtplane.storage.cdi.importer.gunzip import BadGzip, Gunzip
from virtplane.storage.cdi.importer.outcome import ChecksumMismatch, ImportFailed

PIECE = 1 << 20
"""The most bytes that one read gives."""
TRAILING_BYTES = 64 << 20
"""How much may come behind the end of a compressed file or an archive: nobody pads by that much."""
_NESTED = 2
"""How many compressions inside each other are undone: each costs a process, and up to 160 MiB of memory."""
_STDERR_BYTES = 4096


class Reader(Protocol):
    """Something to read from. After the end, or instead of it, it must be closed."""

    async def read(self) -> bytes:
        """The next piece, of at most `PIECE` bytes; empty at the end. Raises ImportFailed."""

    async def close(self) -> None:
        """Free what the reader holds. Bytes that are not read yet are lost."""


class Peeked:
    """A reader whose first bytes can be looked at before they are read."""

    def __init__(self, source: Reader) -> None:
        self._source = source
        self._ready = b""
        self._begin = 0
        """Where in `_ready` the next byte is: what was dropped is not copied away each time."""

    async def peek(self, size: int) -> bytes:
        """The next `size` bytes, or fewer where the source ends."""
        while len(self._ready) - self._begin < size:
            piece = await self._source.read()
            if not piece:
                break
            self._ready = self._ready[self._begin :] + piece
            self._begin = 0
        return self._ready[self._begin : self._begin + size]

    def drop(self, size: int) -> None:
        """Pass over `size` bytes that were looked at."""
        self._begin += size
        if self._begin >= len(self._ready):
            self._ready, self._begin = b"", 0

    async def read(self) -> bytes:
        if self._ready:
            piece = self._ready[self._begin : self._begin + PIECE]
            self.drop(len(piece))
            return piece
        return await self._source.read()

    async def close(self) -> None:
        await self._source.close()


class Counted:
    """A reader that tells how many bytes were read from it, for progress."""

    def __init__(self, source: Reader, tell: Callable[[int], None]) -> None:
        self._source, self._tell, self._total = source, tell, 0

    async def read(self) -> bytes:
        piece = await self._source.read()
        self._total += len(piece)
        self._tell(self._total)
        return piece

    async def close(self) -> None:
        await self._source.close()


class Checked:
    """A reader that compares a checksum when its source ends.

    `checksum` is ``algorithm:hex`` with md5, sha1, sha256 or sha512.
    """

    def __init__(self, source: Reader, checksum: str) -> None:
        self._source = source
        self._algorithm, _, expected = checksum.partition(":")
        self._expected = expected.lower()
        self._hash = _new_hash(self._algorithm)

    async def read(self) -> bytes:
        """As `Reader.read`. Raises ChecksumMismatch instead of giving the end."""
        piece = await self._source.read()
        if piece:
            await asyncio.to_thread(self._hash.update, piece)
            return piece
        calculated = self._hash.hexdigest()
        if calculated != self._expected:
            raise ChecksumMismatch(self._algorithm, self._expected, calculated)
        return b""

    async def close(self) -> None:
        await self._source.close()


class Gunzipped:
    """What is packed by gzip in a reader's bytes."""

    def __init__(self, source: Reader) -> None:
        self._source, self._gunzip = source, Gunzip()

    async def read(self) -> bytes:
        fruitless = 0
        try:
            while not (made := self._gunzip.produce(PIECE)):
                piece = b"" if self._gunzip.is_over else await self._source.read()
                fruitless += len(piece)
                if fruitless > TRAILING_BYTES:
                    # Padding, and empty files, are skipped for as long as they come.
                    raise too_much_behind()
                if not piece:
                    self._gunzip.finish()
                    if self._gunzip.is_over:
                        # What is behind the end is still read, for a checksum is that of the whole file.
                        await drain(self._source)
                    return b""
                self._gunzip.feed(piece)
        except BadGzip as error:
            raise ImportFailed(f"Unable to process data: gzip: {error}") from error
        return made

    async def close(self) -> None:
        await self._source.close()


class Decompressed:
    """What a decompressor makes of a reader's bytes.

    The program runs beside us and holds little in memory.
    """

    def __init__(self, source: Reader, compression: Compression) -> None:
        self._source, self._compression = source, compression
        self._process: asyncio.subprocess.Process | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._fruitless = 0
        """How many bytes the program has taken since it gave one."""

    async def read(self) -> bytes:
        if self._process is None:
            await self._start()
        assert self._process is not None and self._process.stdout is not None
        piece = await self._process.stdout.read(PIECE)
        self._fruitless = 0
        if not piece:
            await self._finish()
        return piece

    async def close(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()
        await self._source.close()

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._compression.value, stdin=pipe, stdout=pipe, stderr=pipe, limit=2 * PIECE
        )
        self._feeding = asyncio.create_task(self._feed(self._process))

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        try:
            while piece := await self._source.read():
                self._fruitless += len(piece)
                if self._fruitless > TRAILING_BYTES:
                    # Programs skip zeros, and empty files, behind the end for as long as they come.
                    raise too_much_behind()
                process.stdin.write(piece)
                await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            # The program has seen enough; its exit code says whether that is an error. What is behind its end
            # is still read, for a checksum is that of the whole file.
            await drain(self._source)
        finally:
            process.stdin.close()

    async def _finish(self) -> None:
        """Raise what the source or the program complains about, once all is read."""
        assert self._process is not None and self._process.stderr is not None and self._feeding is not None
        await self._feeding
        complaint = await self._process.stderr.read(_STDERR_BYTES)
        code = await self._process.wait()
        if code != 0:
            raise ImportFailed(f"Unable to process data: {complaint.decode(errors='replace').strip()}")


async def peel(source: Reader) -> tuple[Peeked, Kind, int]:
    """Undo compressions until something else begins: that, what it is, and how many there were.

    Raises ImportFailed where they are nested too deeply.
    """
    peeked = Peeked(source)
    for depth in range(_NESTED + 1):
        kind = recognise(await peeked.peek(HEAD_BYTES))
        if not isinstance(kind, Compression):
            return peeked, kind, depth
        peeked = Peeked(Gunzipped(peeked) if kind is Compression.GZIP else Decompressed(peeked, kind))
    await peeked.close()
    raise ImportFailed("Unable to process data: the file is compressed too many times")


async def drain(source: Reader) -> None:
    """Read `source` to its end, for its checksum. Raises ImportFailed where it goes on for too long."""
    left = TRAILING_BYTES
    while piece := await source.read():
        left -= len(piece)
        if left < 0:
            raise too_much_behind()


def too_much_behind() -> ImportFailed:
    """The error that a file does not end where what is in it ends."""
    return ImportFailed(f"Unable to process data: more than {TRAILING_BYTES} bytes come after the data")


def _new_hash(algorithm: str) -> hashlib._Hash:
    if algorithm not in ("md5", "sha1", "sha256", "sha512"):
        raise ImportFailed(f"Unable to process data: unsupported checksum algorithm {algorithm!r}")
    return hashlib.new(algorithm, usedforsecurity=False)
