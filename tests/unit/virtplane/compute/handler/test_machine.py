"""What virt-handler does for one guest on its node, apart from libvirt."""

from __future__ import annotations

import asyncio

import pytest

from virtplane.compute.handler.machine import both


async def test_a_failed_step_is_reported_only_once_the_other_has_ended() -> None:
    ended = []

    async def fails() -> str:
        raise OSError("no network")

    async def works() -> int:
        await asyncio.sleep(0.01)
        ended.append("volumes")
        return 1

    with pytest.raises(OSError, match="no network"):
        await both(fails(), works())
    assert ended == ["volumes"]


async def test_two_steps_give_both_results() -> None:
    assert await both(asyncio.sleep(0, "links"), asyncio.sleep(0, 2)) == ("links", 2)
