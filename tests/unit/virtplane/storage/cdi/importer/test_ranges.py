"""What is read in a row comes in few answers; whoever reads here and there asks for nothing in vain."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.support.hostile_server import answering
from tests.support.image_server import ServedFile, serving
from yarl import URL

from virtplane.storage.cdi.importer.http import Facts, Web, WebObject
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.ranges import Ranges, TooShort
from virtplane.storage.cdi.importer.remote_disk import RemoteDisk

KIB, MIB = 1 << 10, 1 << 20
CONTENT = random.Random(3).randbytes(16 * MIB)


@dataclass
class _Served:
    """Ranges of what a server has, and the ranges that it was asked for."""

    ranges: Ranges
    file: ServedFile

    async def read(self, first: int, size: int) -> bytes:
        pieces = await self.ranges.read(first, first + size - 1)
        return b"".join(pieces)

    @property
    def asked(self) -> list[tuple[int, int]]:
        found = [re.fullmatch(r"bytes=(\d+)-(\d+)", each.headers["Range"]) for each in self.file.requests]
        return [(int(each[1]), int(each[2])) for each in found if each]


@asynccontextmanager
async def _served() -> AsyncIterator[_Served]:
    file = ServedFile(CONTENT)
    async with serving(file) as address, Web(insecure=False, cert_folders=()) as web:
        ranges = Ranges(web, WebObject(URL(f"{address}/disk")), len(CONTENT), "")
        try:
            yield _Served(ranges, file)
        finally:
            await ranges.close()


@pytest.mark.parametrize("more", [0, 1], ids=["as they are", "a byte more, as nbdkit does"])
async def test_reads_in_a_row_come_in_few_answers(more: int) -> None:
    async with _served() as served:
        step = 256 * KIB
        for first in range(0, len(CONTENT) - step, step):
            assert await served.read(first, step + more) == CONTENT[first : first + step + more]
        assert len(served.asked) <= 8  # of 63


async def test_no_more_is_asked_for_ahead_than_was_read_in_the_row() -> None:
    async with _served() as served:
        for first in range(0, 8 * MIB, MIB):
            await served.read(first, MIB)
        ends = [last + 1 for _, last in served.asked]
    assert all(end <= 2 * max(begin, MIB) for (begin, _), end in zip(served.asked, ends, strict=True))
    assert max(ends) <= len(CONTENT)


async def test_reads_here_and_there_are_asked_for_as_they_are() -> None:
    async with _served() as served:
        wanted = [(offset, offset + 64 * KIB - 1) for offset in (0, 9 * MIB, 3 * MIB, 12 * MIB, MIB)]
        for first, last in wanted:
            assert await served.read(first, last + 1 - first) == CONTENT[first : last + 1]
        assert served.asked == wanted


async def test_a_table_elsewhere_does_not_end_a_row_and_one_in_its_way_is_passed_over() -> None:
    async with _served() as served:
        position = 0
        for _ in range(6):
            assert await served.read(position, MIB) == CONTENT[position : position + MIB]
            position += MIB
        before = len(served.asked)
        assert await served.read(15 * MIB, 64 * KIB) == CONTENT[15 * MIB : 15 * MIB + 64 * KIB]
        position += 64 * KIB
        assert await served.read(position, 512 * KIB) == CONTENT[position : position + 512 * KIB]
        assert len(served.asked) == before + 1


@pytest.mark.parametrize("first", [0, 5 * MIB, len(CONTENT) - MIB])
async def test_reads_up_to_the_last_byte_are_whole(first: int) -> None:
    async with _served() as served:
        await served.read(first, 512 * KIB)
        rest = await served.read(first + 512 * KIB, len(CONTENT) - first - 512 * KIB)
        assert rest == CONTENT[first + 512 * KIB :]
        assert await served.read(len(CONTENT) - 1, 1) == CONTENT[-1:]


@dataclass
class _Capped:
    """A server that gives at most `most` bytes of a range and ends the connection after `breaks_after`."""

    most: int = 1 << 62
    breaks_after: int = 1 << 62
    asked: list[int] = field(default_factory=list)

    async def answer(self, request: str, writer: asyncio.StreamWriter) -> None:
        found = re.search(r"Range: bytes=(\d+)-(\d+)", request)
        assert found is not None
        first = int(found[1])
        wanted = CONTENT[first : int(found[2]) + 1]
        self.asked.append(len(wanted))
        given = wanted[: self.most]
        writer.write(b"HTTP/1.1 206 Part\r\nConnection: close\r\n")
        writer.write(f"Content-Range: bytes {first}-{first + len(given) - 1}/{len(CONTENT)}\r\n".encode())
        writer.write(f"Content-Length: {len(given)}\r\n\r\n".encode() + given[: self.breaks_after])
        await writer.drain()


async def _read_whole(server: _Capped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virtplane.storage.cdi.importer.remote_disk._PAUSE_SECONDS", 0)
    async with answering(server.answer) as address, Web(insecure=False, cert_folders=()) as web:
        facts = Facts(len(CONTENT), True, "")
        disk = RemoteDisk(web, WebObject(URL(f"{address}/disk")), facts, lambda _: None)
        try:
            for first in range(0, len(CONTENT), MIB):
                assert await disk.range(first, first + MIB - 1) == CONTENT[first : first + MIB]
        finally:
            await disk.close()


async def test_a_server_that_gives_no_more_than_a_part_is_asked_for_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = _Capped(most=MIB)
    await _read_whole(server, monkeypatch)
    assert sum(size > MIB for size in server.asked) == 1, "once it is known, it is not tried again"


async def test_an_answer_that_breaks_off_is_asked_for_again_where_it_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = _Capped(breaks_after=MIB + 5)
    await _read_whole(server, monkeypatch)
    assert sum(size > MIB for size in server.asked) > 1, "a broken connection says nothing of the next"


async def test_an_answer_for_other_bytes_is_an_error() -> None:
    async def answer(request: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 206 Part\r\nContent-Range: bytes 7-9/99\r\nContent-Length: 3\r\n\r\n123")

    async with answering(answer) as address, Web(insecure=False, cert_folders=()) as web:
        ranges = Ranges(web, WebObject(URL(f"{address}/disk")), 99, "")
        with pytest.raises(ImportFailed, match="other bytes"):
            await ranges.read(0, 9)


async def test_after_a_read_that_failed_the_next_one_is_as_good() -> None:
    server = _Capped(most=MIB // 2)
    async with answering(server.answer) as address, Web(insecure=False, cert_folders=()) as web:
        ranges = Ranges(web, WebObject(URL(f"{address}/disk")), len(CONTENT), "")
        await ranges.read(0, 9)
        with pytest.raises(TooShort):
            await ranges.read(10, MIB)
        assert b"".join(await ranges.read(10, 19)) == CONTENT[10:20]
