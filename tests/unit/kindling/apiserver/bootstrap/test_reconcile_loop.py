"""Work that follows changes."""

from __future__ import annotations

import asyncio

import pytest

from kindling.apiserver.bootstrap.reconcile_loop import ReconcileLoop
from kubecore import errors


async def test_work_is_done_once_for_all_changes_before_it_and_again_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []
    done = asyncio.Event()

    async def work() -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:
            loop.changed()
            raise errors.bad_request("not yet")
        done.set()

    loop = ReconcileLoop(work, "It was not kept up")
    loop.changed()
    loop.changed()
    task = asyncio.create_task(loop.run())
    await asyncio.wait_for(done.wait(), 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert attempts == [0, 1]
    assert "It was not kept up" in caplog.text
