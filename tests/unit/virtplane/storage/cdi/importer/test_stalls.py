"""Slow servers, and servers that stand still: ten minutes without a byte end an import, nothing else.

The clock is the test's: it goes on when nobody has anything to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.support.hostile_server import answering
from yarl import URL

from virtplane.storage.cdi.importer.http import Facts, Web, WebObject
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.remote_disk import RemoteDisk

pytestmark = pytest.mark.looptime
STALLED = "Unable to process data: no progress for 10 minutes"
CONTENT = b"a disk, drop by drop"
SIZE = len(CONTENT)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _dripping(pauses: Sequence[float], asked: list[str]) -> Callable[..., Awaitable[None]]:
    """A server that gives one byte after each of `pauses`, then nothing more; ranges are answered, too."""

    async def answer(request: str, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        ranged = "Range: " in request
        writer.write(b"HTTP/1.1 206 Part\r\n" if ranged else b"HTTP/1.1 200 OK\r\n")
        writer.write(f"Content-Range: bytes 0-{SIZE - 1}/{SIZE}\r\n".encode() if ranged else b"")
        writer.write(f'Accept-Ranges: bytes\r\nETag: "1"\r\nContent-Length: {SIZE}\r\n\r\n'.encode())
        for pause, byte in zip(pauses, CONTENT, strict=False):
            await asyncio.sleep(pause)
            writer.write(bytes([byte]))
            await writer.drain()
        await asyncio.Event().wait()

    return answer


async def _downloaded(address: str) -> bytes:
    content = b""
    async with Web(insecure=False, cert_folders=()) as web:
        download = await web.open(WebObject(URL(address)))
        try:
            while piece := await download.read():
                content += piece
        finally:
            await download.close()
    return content


async def _in_place(address: str) -> bytes:
    async with Web(insecure=False, cert_folders=()) as web:
        disk = RemoteDisk(web, WebObject(URL(address)), Facts(SIZE, True, '"1"'), lambda _: None)
        try:
            return await disk.beginning()
        except ImportFailed as error:
            before = _now()
            with pytest.raises(ImportFailed, match=str(error)):  # as when nbdkit asks again
                await disk.beginning()
            assert _now() == before
            raise


@pytest.mark.parametrize("fetch", [_downloaded, _in_place])
async def test_server_that_gives_a_byte_every_ten_minutes_is_waited_for(
    fetch: Callable[[str], Awaitable[bytes]],
) -> None:
    pauses, begin, asked = [590.0] * SIZE, _now(), list[str]()
    async with answering(_dripping(pauses, asked)) as address:
        assert await fetch(address) == CONTENT
    assert _now() - begin == pytest.approx(sum(pauses), abs=5)
    assert len(asked) == 1


@pytest.mark.parametrize("fetch", [_downloaded, _in_place])
@pytest.mark.parametrize("drops", [0, 3])
async def test_server_that_stands_still_ends_the_import_after_ten_minutes(
    fetch: Callable[[str], Awaitable[bytes]], drops: int
) -> None:
    begin, asked = _now(), list[str]()
    async with answering(_dripping([60.0] * drops, asked)) as address:
        with pytest.raises(ImportFailed, match=STALLED):
            await fetch(address)
    assert _now() - begin == pytest.approx(60 * drops + 600, abs=5)
    assert len(asked) == 1, "what stands still is not asked again"
