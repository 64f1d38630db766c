"""What tests run controllers with fails them where the controllers fail."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.managers import working

from kubecore.runtime import Manager
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime


async def _fail_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise ValueError("broken")


async def test_controllers_that_end_fail_the_test_that_uses_them() -> None:
    manager = Manager(MemoryApi().client())
    manager.add_runnable("breaks", lambda: _fail_after(1.0))
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        async with working(manager):
            await asyncio.sleep(2.0)


async def test_controllers_that_work_are_stopped_at_the_end() -> None:
    manager = Manager(MemoryApi().client())
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    manager.add_runnable("works", work)
    async with working(manager):
        assert not stopped.is_set()
    assert stopped.is_set()
