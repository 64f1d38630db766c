"""One user at a time for each console."""

from __future__ import annotations

import asyncio

import pytest

from virtplane.compute.handler.consoles.sessions import Sessions

pytestmark = pytest.mark.looptime


async def test_a_later_session_begins_once_the_earlier_has_ended() -> None:
    sessions = Sessions()
    story: list[str] = []

    async def use(name: str) -> None:
        async with sessions.take("console") as ending:
            story.append(f"{name} begins")
            await ending.wait()
            story.append(f"{name} ends")

    tasks = []
    for name in ("first", "second", "third"):
        tasks.append(asyncio.create_task(use(name)))
        await asyncio.sleep(0)
    await asyncio.sleep(1)
    assert story[:3] == ["first begins", "first ends", "second begins"]
    assert story[-1] == "third begins"
    assert sessions.is_open("console")
    tasks[-1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not sessions.is_open("console")


async def test_sessions_of_other_guests_are_left_alone() -> None:
    sessions = Sessions()
    async with sessions.take(("one", "console")) as ending, sessions.take(("two", "console")):
        assert not ending.is_set()
