"""A disk on a web server as a local NBD export.

`qemu-img` reads what it needs of it, and nothing is stored twice.

nbdkit's curl plug-in reads from a Unix socket of this process, which asks the server. So credentials,
redirects, proxies and certificates have one place (`http`), and the first MiB, which was checked for
references to other files, is the one that `qemu-img` gets, whatever the server says the second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web as server

from virtplane.storage.cdi.importer.headers import HEADER_BYTES
from virtplane.storage.cdi.importer.http import Facts, Unavailable, Web, WebObject, has_stalled, reason
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.qemu import NbdImage
from virtplane.storage.cdi.importer.ranges import Ranges, TooShort

_RANGE = re.compile(r"bytes=(\d+)-(\d+)$")
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0
_START_SECONDS = 60.0


class RemoteDisk:
    """The object's bytes by ranges; the beginning is read once."""

    def __init__(self, client: Web, wanted: WebObject, facts: Facts, tell: Callable[[int], None]) -> None:
        if facts.size is None:
            raise ValueError("the size of a remote disk must be known")
        self._tell = tell
        self.size = facts.size
        self._ranges = Ranges(client, wanted, facts.size, facts.validator)
        self._reading = asyncio.Lock()
        self._pinned: dict[int, bytes] = {}
        """Bytes that were looked at, by where they begin: later reads get the same ones."""
        self._read = 0
        self.failure: ImportFailed | None = None
        self._stall: ImportFailed | None = None
        """Whoever asks again (nbdkit does) would wait as long again."""

    async def beginning(self) -> bytes:
        """The first MiB, always the same. Raises ImportFailed."""
        if 0 not in self._pinned:
            self.pin(0, b"".join(await self._fetch(0, min(self.size, HEADER_BYTES) - 1)))
        return self._pinned[0]

    def pin(self, offset: int, content: bytes) -> None:
        """Make `content` what is read at `offset` from now on."""
        self._pinned[offset] = content

    async def range(self, first: int, last: int) -> bytes:
        """The bytes from `first` to `last`. Raises ImportFailed."""
        return b"".join(await self.pieces(first, last))

    async def pieces(self, first: int, last: int) -> list[bytes]:
        """As `range`, in the pieces in which they came."""
        await self.beginning()
        pieces: list[bytes] = []
        position = first
        while position <= last:
            known = self._known(position)[: last + 1 - position]
            found = [known] if known else await self._fetch(position, self._until(position, last))
            pieces += found
            position += sum(map(len, found))
        self._read += position - first
        self._tell(self._read)
        return pieces

    async def close(self) -> None:
        """End what is being read ahead."""
        await self._ranges.close()

    def _known(self, position: int) -> bytes:
        for begin, content in self._pinned.items():
            if begin <= position < begin + len(content):
                return content[position - begin :]
        return b""

    def _until(self, position: int, last: int) -> int:
        """The end of what must be fetched from `position`: before what is pinned behind it."""
        return min([begin - 1 for begin in self._pinned if position < begin <= last], default=last)

    async def _fetch(self, first: int, last: int) -> list[bytes]:
        for attempt in range(_ATTEMPTS):
            if self._stall is not None:
                raise self._stall
            try:
                async with self._reading:
                    return await self._ranges.read(first, last)
            except TooShort:
                problem = "the server's answer is too short"
            except (Unavailable, aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = reason(error)
                if has_stalled(error):
                    self._stall = ImportFailed(f"Unable to process data: {problem}")
                    continue
            await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise self._stall or ImportFailed(f"Unable to process data: {problem}")


class RemoteReader:
    """A reader of a remote disk, by ranges."""

    def __init__(self, disk: RemoteDisk) -> None:
        self._disk, self._position = disk, 0

    async def read(self) -> bytes:
        if self._position >= self._disk.size:
            return b""
        piece = await self._disk.range(self._position, min(self._position + (1 << 20), self._disk.size) - 1)
        self._position += len(piece)
        return piece

    async def close(self) -> None:
        return None


@asynccontextmanager
async def exported(disk: RemoteDisk) -> AsyncIterator[NbdImage]:
    """`disk` at an NBD socket while the context lasts. Raises ImportFailed."""
    with tempfile.TemporaryDirectory(prefix="importer-") as folder:
        inner, outer = Path(folder, "http"), Path(folder, "nbd")
        async with _serving(disk, inner):
            command = ["nbdkit", "--foreground", "--readonly", "--exit-with-parent", "--unix", str(outer)]
            command += ["--filter=retry-request", "curl", "url=http://disk/", f"unix-socket-path={inner}"]
            command += ["retry-request-retries=2", "retry-request-delay=1"]
            process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            try:
                await listening(process, outer)
                yield NbdImage(outer)
            except ImportFailed as error:
                # What qemu-img says of a broken export is less than what broke it.
                raise disk.failure or error from error
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.communicate()
                await disk.close()


@asynccontextmanager
async def _serving(disk: RemoteDisk, socket: Path) -> AsyncIterator[None]:
    async def answer(request: server.Request) -> server.StreamResponse:
        headers = {"Accept-Ranges": "bytes"}
        if request.method == "HEAD":
            return server.Response(headers=headers | {"Content-Length": str(disk.size)})
        found = _RANGE.match(request.headers.get("Range", ""))
        if not found:
            return server.Response(status=416)
        first, last = int(found[1]), min(int(found[2]), disk.size - 1)
        try:
            pieces = await disk.pieces(first, last)
        except ImportFailed as error:
            disk.failure = error
            return server.Response(status=502)
        headers["Content-Range"] = f"bytes {first}-{last}/{disk.size}"
        response = server.StreamResponse(status=206, headers=headers)
        response.content_length = last + 1 - first
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    application = server.Application()
    application.router.add_route("*", "/", answer)
    runner = server.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await server.UnixSite(runner, str(socket)).start()
        yield
    finally:
        await runner.cleanup()


async def listening(process: asyncio.subprocess.Process, socket: Path) -> None:
    """Wait until the socket takes connections. Raises ImportFailed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while process.returncode is None:
                try:
                    _, writer = await asyncio.open_unix_connection(str(socket))
                except OSError:
                    await asyncio.sleep(0.01)
                    continue
                writer.close()
                return
    raise ImportFailed("Unable to process data: nbdkit does not serve the disk")
