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

_RANGE = re.compile(r"bytes=(\d+)-(\d+)$")
_ATTEMPTS = 5
_PAUSE_SECONDS = 1.0
_START_SECONDS = 60.0


class RemoteDisk:
    """The object's bytes by ranges; the beginning is read once."""

    def __init__(self, client: Web, wanted: WebObject, facts: Facts, tell: Callable[[int], None]) -> None:
        if facts.size is None:
            raise ValueError("the size of a remote disk must be known")
        self._client, self._wanted, self._facts, self._tell = client, wanted, facts, tell
        self.size = facts.size
        self._pinned: dict[int, bytes] = {}
        """Bytes that were looked at, by where they begin: later reads get the same ones."""
        self._read = 0
        self.failure: ImportFailed | None = None
        self._stall: ImportFailed | None = None
        """Whoever asks again (nbdkit does) would wait as long again."""

    async def beginning(self) -> bytes:
        """The first MiB, always the same. Raises ImportFailed."""
        if 0 not in self._pinned:
            self.pin(0, await self._fetch(0, min(self.size, HEADER_BYTES) - 1))
        return self._pinned[0]

    def pin(self, offset: int, content: bytes) -> None:
        """Make `content` what is read at `offset` from now on."""
        self._pinned[offset] = content

    async def range(self, first: int, last: int) -> bytes:
        """The bytes from `first` to `last`. Raises ImportFailed."""
        await self.beginning()
        content = bytearray()
        while (position := first + len(content)) <= last:
            known = self._known(position)
            content += known[: last + 1 - position] or await self._fetch(
                position, self._until(position, last)
            )
        self._read += len(content)
        self._tell(self._read)
        return bytes(content)

    def _known(self, position: int) -> bytes:
        for begin, content in self._pinned.items():
            if begin <= position < begin + len(content):
                return content[position - begin :]
        return b""

    def _until(self, position: int, last: int) -> int:
        """The end of what must be fetched from `position`: before what is pinned behind it."""
        return min([begin - 1 for begin in self._pinned if position < begin <= last], default=last)

    async def _fetch(self, first: int, last: int) -> bytes:
        for attempt in range(_ATTEMPTS):
            if self._stall is not None:
                raise self._stall
            try:
                get = self._client.get(self._wanted, first=first, last=last, validator=self._facts.validator)
                async with get as response:
                    content = await _exactly(response, last - first + 1)
                    if content is not None:
                        return content
                problem = "the server's answer is too short"
            except (Unavailable, aiohttp.ClientError, TimeoutError, OSError) as error:
                problem = reason(error)
                if has_stalled(error):
                    self._stall = ImportFailed(f"Unable to process data: {problem}")
                    continue
            await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise self._stall or ImportFailed(f"Unable to process data: {problem}")


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


async def _exactly(response: aiohttp.ClientResponse, size: int) -> bytes | None:
    """The body, if it has `size` bytes; a server that sends more is not read further."""
    content = bytearray()
    while len(content) <= size and (piece := await response.content.readany()):
        content += piece
    return bytes(content) if len(content) == size else None


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
            content = await disk.range(first, last)
        except ImportFailed as error:
            disk.failure = error
            return server.Response(status=502)
        headers["Content-Range"] = f"bytes {first}-{last}/{disk.size}"
        return server.Response(status=206, body=content, headers=headers)

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
