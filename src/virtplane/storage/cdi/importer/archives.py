"""Tar archives: all files into the volume, or one disk out of an archive (OVA, layers of container images).

Headers are read one by one and bounded; the files of an archive are never held in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.streams import PIECE, Peeked, Reader

_BLOCK = 512
_HEADER_BYTES = 1 << 20
"""The most that a long name or extended header may have."""
_ENTRIES = 1_000_000
"""The most files, folders and links of one archive that are looked through for a disk."""
_NUMBER_DIGITS = 19
"""Of numbers in extended headers: more make no size that a file can have."""
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_CUT_SHORT = "Wrote only "
_WITHOUT_BYTES = (
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.DIRTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file in an archive: `offset` is where its bytes begin."""

    name: str
    size: int
    offset: int


class TarEntries:
    """The regular files of a tar, in order. Between two of them the first one's bytes may be read."""

    def __init__(self, source: Reader) -> None:
        self._source = Peeked(source)
        self._position = 0
        self._left = 0
        self._padding = 0
        self._seen = 0

    async def next(self) -> Entry | None:
        """The next regular file; None at the end. Raises ImportFailed for what is no tar."""
        name, size = "", -1
        while self._seen < _ENTRIES:
            self._seen += 1
            await self._skip(self._left + self._padding)
            self._left = self._padding = 0
            block = await self._exactly(_BLOCK)
            if not block or not block.strip(b"\0"):
                return None
            header = _header(block)
            padded = -(-header.size // _BLOCK) * _BLOCK
            if header.type in _LONG or header.type in _EXTENDED:
                extension = await self._extension(header.size, padded)
                if header.type == tarfile.GNUTYPE_LONGNAME:
                    name = extension.split(b"\0", 1)[0].decode(errors="replace")
                elif header.type == tarfile.XHDTYPE:
                    name, size = _extended(extension, name)
                continue
            self._left = header.size if size < 0 else size
            self._padding = -self._left % _BLOCK
            if header.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                return Entry(name or header.name, self._left, self._position)
            if header.type in _WITHOUT_BYTES:
                self._left = self._padding = 0
            name, size = "", -1
        raise ImportFailed("Unable to process data: the archive has too many entries")

    async def read(self) -> bytes:
        """As `Reader.read`, of the entry that `next` gave last."""
        if self._left == 0:
            return b""
        piece = await self._source.peek(min(self._left, PIECE))
        if not piece:
            raise ImportFailed("Unable to process data: the archive is truncated")
        await self._exactly(len(piece))
        self._left -= len(piece)
        return piece

    async def close(self) -> None:
        await self._source.close()

    async def _extension(self, size: int, padded: int) -> bytes:
        if size > _HEADER_BYTES:
            raise ImportFailed("Unable to process data: a header of the archive is too long")
        return (await self._exactly(padded))[:size]

    async def _exactly(self, size: int) -> bytes:
        """`size` bytes, or none at the source's end. Raises ImportFailed for fewer."""
        content = await self._source.peek(size)
        if content and len(content) < size:
            raise ImportFailed("Unable to process data: the archive is truncated")
        self._source.drop(len(content))
        self._position += len(content)
        return content

    async def _skip(self, size: int) -> None:
        while size > 0:
            taken = len(await self._exactly(min(size, PIECE)))
            if not taken:
                raise ImportFailed("Unable to process data: the archive is truncated")
            size -= taken


async def find(entries: TarEntries, wanted: Callable[[str], bool]) -> Entry | None:
    """The first regular file whose name is `wanted`. Raises ImportFailed."""
    while (entry := await entries.next()) is not None:
        if wanted(entry.name.removeprefix("./").lstrip("/")):
            return entry
    return None


_NOT_THE_FOLDER = ("--no-recursion", "--anchored", "--exclude=.")
"""tar's options against an entry for the folder itself. A volume's root often belongs to another user, who
alone may change its time and mode; without recursion nothing below it is left out.
"""


async def unpack(source: Reader, folder: Path) -> None:
    """Unpack a tar into `folder`, which stays as it is apart from its new entries. Names that lead out of it
    are left to tar, which refuses them.

    Raises ImportFailed.
    """
    command = ["tar", "--extract", "--preserve-permissions", "--no-same-owner", "--sparse"]
    command += [*_NOT_THE_FOLDER, "-C", str(folder)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stderr=pipe)
    assert process.stdin is not None and process.stderr is not None
    complaints = asyncio.create_task(_bounded(process.stderr))
    try:
        await _feed(source, process.stdin)
        code = await process.wait()
        complaint = await complaints
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        complaints.cancel()
    if code != 0:
        # tar does not name the cause of a write that was cut short.
        full = "no space left on device: " if _CUT_SHORT in complaint else ""
        raise ImportFailed(f"Unable to process data: unable to untar files: {full}{complaint}")
    sync = await asyncio.create_subprocess_exec("sync", "--file-system", str(folder))
    if await sync.wait() != 0:
        raise ImportFailed("Unable to process data: the files could not be written to the disk")


@asynccontextmanager
async def extracted(source: Reader, name: str) -> AsyncIterator[Reader]:
    """The bytes of the first file called `name` in a tar; holes that the tar leaves out are zeros.

    All of `source` is read. Raises ImportFailed, at the end too: what was read does not count then.
    """
    command = ["tar", "--extract", "--to-stdout", "--occurrence=1", "--no-anchored", name]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=2 * PIECE
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    feeding = asyncio.create_task(_feed_all(source, process.stdin))
    complaints = asyncio.create_task(_bounded(process.stderr))
    try:
        yield _Output(process.stdout)
        await feeding
        if await process.wait() != 0:
            raise ImportFailed(f"Unable to process data: {name} is not in the archive: {await complaints}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for task in (feeding, complaints):
            task.cancel()
        await asyncio.gather(feeding, complaints, return_exceptions=True)


class _Output:
    """What a program writes, as a reader."""

    def __init__(self, output: asyncio.StreamReader) -> None:
        self._output = output

    async def read(self) -> bytes:
        return await self._output.read(PIECE)

    async def close(self) -> None:
        return None


async def _feed(source: Reader, stdin: asyncio.StreamWriter) -> None:
    """Pass `source` on until the program has had enough, or to its end."""
    try:
        while piece := await source.read():
            stdin.write(piece)
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        stdin.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()


async def _feed_all(source: Reader, stdin: asyncio.StreamWriter) -> None:
    """As `_feed`, but all of `source` is read, so that its sender can end."""
    await _feed(source, stdin)
    while await source.read():
        pass


async def _bounded(stream: asyncio.StreamReader) -> str:
    kept = b""
    while piece := await stream.read(4096):
        kept = (kept + piece)[:4096]
    return kept.decode(errors="replace").strip()


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ImportFailed(f"Unable to process data: the archive is damaged: {error}") from error
    if not 0 <= header.size < 1 << 63:
        raise ImportFailed("Unable to process data: the archive is damaged: a file has an impossible size")
    return header


def _extended(extension: bytes, name: str) -> tuple[str, int]:
    """Name and size that an extended (pax) header gives the next entry; -1 for no size."""
    size, begin = -1, 0
    while begin < len(extension):
        # Nothing is copied but the record: there may be hundreds of thousands of them.
        space = extension.find(b" ", begin, begin + _NUMBER_DIGITS + 1)
        length_text = extension[begin : max(begin, space)]
        if not _is_number(length_text) or not 0 < int(length_text) <= len(extension) - begin:
            raise ImportFailed("Unable to process data: an extended header of the archive is damaged")
        end = begin + int(length_text)
        record, begin = extension[space + 1 : end], end
        key, _, value = record.rstrip(b"\n").partition(b"=")
        if key == b"path":
            name = value.decode(errors="replace")
        elif key == b"size" and _is_number(value):
            size = int(value)
    return name, size


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _NUMBER_DIGITS
