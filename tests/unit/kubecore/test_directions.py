"""Connections that are passed on."""

from __future__ import annotations

import asyncio

import pytest

from kubecore.directions import until_one_ends


async def ends() -> None:
    """A direction whose source has no more."""


async def test_the_end_of_one_direction_ends_the_other() -> None:
    ended = asyncio.Event()

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await until_one_ends(goes_on(), ends())
    assert ended.is_set()


@pytest.mark.parametrize("broken", [ConnectionResetError(), BrokenPipeError(), TimeoutError(), OSError()])
async def test_a_broken_connection_is_an_end(broken: OSError) -> None:
    async def breaks() -> None:
        raise broken

    async def goes_on() -> None:
        await asyncio.Event().wait()

    await until_one_ends(goes_on(), breaks())


async def test_another_failure_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("it is no message")

    with pytest.raises(ValueError, match="it is no message"):
        await until_one_ends(fails(), ends())


async def test_a_cancelled_caller_leaves_nothing_behind() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def goes_on() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.create_task(until_one_ends(goes_on()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
