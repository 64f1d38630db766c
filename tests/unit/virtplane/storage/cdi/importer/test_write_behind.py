"""What comes is written in its order, and nothing is written once the writer is left."""

from __future__ import annotations

import asyncio
import threading

import pytest

from virtplane.storage.cdi.importer.write_behind import WriteBehind

MIB = 1 << 20


async def test_pieces_are_written_in_their_order_and_few_at_a_time() -> None:
    written, calls = bytearray(), list[int]()

    def write(offset: int, pieces: list[bytes]) -> None:
        assert offset == len(written)
        calls.append(len(pieces))
        written.extend(b"".join(pieces))

    pieces = [bytes([number]) * 100_000 for number in range(101)]
    async with WriteBehind(write) as behind:
        for piece in pieces:
            await behind.add(piece)
    assert written == b"".join(pieces)
    assert calls == [11] * 9 + [2]


async def test_the_next_pieces_come_while_earlier_ones_are_written_but_not_without_end() -> None:
    goes_on, begun = threading.Event(), threading.Event()

    def write(_offset: int, _pieces: list[bytes]) -> None:
        begun.set()
        assert goes_on.wait(30)

    async with WriteBehind(write) as behind:
        await behind.add(bytes(MIB))
        assert await asyncio.to_thread(begun.wait, 30)
        await behind.add(bytes(MIB - 1))
        third = asyncio.create_task(behind.add(bytes(MIB)))
        await asyncio.wait({third}, timeout=0.05)
        assert not third.done()
        goes_on.set()
        await third


async def test_what_cannot_be_written_is_told() -> None:
    def write(_offset: int, _pieces: list[bytes]) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        async with WriteBehind(write) as behind:
            while True:
                await behind.add(bytes(MIB))
    with pytest.raises(OSError, match="no space"):
        async with WriteBehind(write) as behind:
            await behind.add(b"the last piece")


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_nothing_is_being_written_once_the_context_has_ended(is_cancelled: bool) -> None:
    """The file is closed then, and its number may soon be that of another one."""
    goes_on, begun, ended = threading.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def write(_offset: int, _pieces: list[bytes]) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(30)
        ended.set()
        raise OSError("unheard")

    async def run() -> None:
        async with WriteBehind(write) as behind:
            await behind.add(bytes(MIB))
            if is_cancelled:
                await behind.add(bytes(MIB))
            else:
                raise ValueError("the source broke")

    running = asyncio.create_task(run())
    await begun.wait()
    if is_cancelled:
        running.cancel()
    await asyncio.wait({running}, timeout=0.05)
    assert not running.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError if is_cancelled else ValueError):
        await running
    assert ended.is_set()
