"""Blocking steps of guests: one that hangs costs its guest one thread, and others nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from virtplane.compute.handler import threads
from virtplane.compute.handler.threads import StepBlocked, Steps


class Storage:
    """Answers once `back` is set."""

    def __init__(self) -> None:
        self.back = threading.Event()
        self.readers = 0

    def read(self) -> str:
        self.readers += 1
        self.back.wait()
        return "data"


@pytest.fixture
def storage() -> Iterator[Storage]:
    made = Storage()
    yield made
    made.back.set()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STEP_SECONDS", 0.01)


async def test_a_step_gives_what_its_function_returns_or_raises() -> None:
    def refuse() -> None:
        raise TimeoutError("the server of the file system did not answer")

    steps = Steps("ns_vm", lambda: None)
    assert await steps.run("volumes", lambda: 42) == 42
    with pytest.raises(TimeoutError, match="file system"):
        await steps.run("volumes", refuse)
    assert not steps.is_blocked("volumes")


@pytest.mark.usefixtures("_impatient")
async def test_a_hanging_step_has_one_thread_however_often_it_is_tried(storage: Storage) -> None:
    steps = Steps("ns_vm", lambda: None)
    for _ in range(3):
        with pytest.raises(StepBlocked, match="volumes"):
            await steps.run("volumes", storage.read)
    assert storage.readers == 1
    assert await steps.run("network", lambda: "wired") == "wired"
    await steps.close()


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_step_that_ends_late_is_told_and_can_be_repeated(storage: Storage, fails: bool) -> None:
    def read() -> str:
        found = storage.read()
        if fails and storage.readers == 1:
            raise OSError("stale file handle")
        return found

    ended = asyncio.Event()
    steps = Steps("ns_vm", ended.set)
    with pytest.raises(StepBlocked):
        await steps.run("volumes", read)
    storage.back.set()
    await ended.wait()
    threads.STEP_SECONDS = 60.0
    assert await steps.run("volumes", read) == "data"


@pytest.mark.usefixtures("_impatient")
async def test_nobody_waits_for_a_hanging_step_at_the_end(storage: Storage) -> None:
    ended: list[str] = []
    steps = Steps("ns_vm", lambda: ended.append("late"))
    with pytest.raises(StepBlocked):
        await steps.run("volumes", storage.read)
    await steps.close()
    assert not steps.is_blocked("volumes")
    assert ended == []
