"""Turns at what takes much memory."""

from __future__ import annotations

import asyncio

import pytest

from virtplane.compute.handler.consoles.turns import Turns

pytestmark = pytest.mark.looptime


async def _used(turns: Turns, namespace: str, ended: list[tuple[str, float]]) -> None:
    async with turns.take(namespace):
        await asyncio.sleep(1)
        ended.append((namespace, asyncio.get_running_loop().time()))


async def test_a_namespace_has_one_turn_and_keeps_nobody_else_waiting() -> None:
    turns, ended, begun = Turns(2), list[tuple[str, float]](), asyncio.get_running_loop().time()
    await asyncio.gather(*(_used(turns, name, ended) for name in ("a", "a", "a", "b")))
    assert [(name, round(at - begun)) for name, at in ended] == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


async def test_only_so_many_have_a_turn_at_once() -> None:
    turns, ended, begun = Turns(2), list[tuple[str, float]](), asyncio.get_running_loop().time()
    await asyncio.gather(*(_used(turns, name, ended) for name in "abcd"))
    assert [round(at - begun) for _, at in ended] == [1, 1, 2, 2]


async def test_whoever_gives_up_leaves_his_place_to_others() -> None:
    turns, ended = Turns(1), list[tuple[str, float]]()
    first = asyncio.create_task(_used(turns, "a", ended))
    second = asyncio.create_task(_used(turns, "a", ended))
    await asyncio.sleep(0.5)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await asyncio.wait_for(_used(turns, "a", ended), 2)
    assert [name for name, _ in ended] == ["a"]
