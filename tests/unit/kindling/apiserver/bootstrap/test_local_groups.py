"""APIServices of the server's own groups follow what it serves."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.memory_objects import MemoryObjects

from kindling.apiserver.bootstrap.local_groups import LocalGroups
from kindling.apiserver.registry.catalog import Catalog
from kubecore import errors


async def test_work_is_done_once_for_all_changes_before_it_and_again_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts: list[int] = []
    done = asyncio.Event()

    class Groups(LocalGroups):
        async def synchronize(self) -> None:
            attempts.append(len(attempts))
            if len(attempts) == 1:
                self.changed()
                raise errors.bad_request("not yet")
            done.set()

    groups = Groups(MemoryObjects(), Catalog())
    groups.changed()
    groups.changed()
    task = asyncio.create_task(groups.run())
    await asyncio.wait_for(done.wait(), 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert attempts == [0, 1]
    assert "APIServices were not brought up to date" in caplog.text
