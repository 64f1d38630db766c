"""When virt-handler looks at its node again."""

from __future__ import annotations

import asyncio

import pytest

from virtplane.compute.handler.node.rounds import Rounds


async def _times(rounds: Rounds, pause: float | None, ask_at: float | None = None) -> list[float]:
    """When it looks in one minute, in seconds."""
    loop, looks = asyncio.get_running_loop(), list[float]()
    start = loop.time()

    async def look() -> float | None:
        looks.append(loop.time() - start)
        return pause

    if ask_at is not None:
        loop.call_later(ask_at, rounds.look_again)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rounds.run(look), 60)
    return looks


@pytest.mark.looptime
async def test_rounds_follow_one_another_after_a_pause() -> None:
    assert await _times(Rounds(), 25) == pytest.approx([0, 25, 50])


@pytest.mark.looptime
async def test_a_round_begins_at_once_when_it_is_asked_for() -> None:
    assert await _times(Rounds(), 25, ask_at=5) == pytest.approx([0, 5, 30, 55])


@pytest.mark.looptime
async def test_without_a_pause_a_round_waits_to_be_asked_for() -> None:
    assert await _times(Rounds(), None, ask_at=40) == pytest.approx([0, 40])


@pytest.mark.looptime
async def test_what_is_asked_for_during_a_round_is_not_missed() -> None:
    rounds, looks = Rounds(), list[int]()

    async def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            rounds.look_again()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rounds.run(look), 60)
    assert len(looks) == 2
