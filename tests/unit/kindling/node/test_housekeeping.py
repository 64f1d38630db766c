"""A node's chores, and the back-off of what fails on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from kindling.node import housekeeping
from kindling.node.backoff import Backoff
from kindling.node.housekeeping import Housekeeping
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure


def container(name: str, log: Path, state: ContainerState = ContainerState.RUNNING) -> Container:
    return Container(name, "s", name, 0, state, 1, log_path=str(log))


@pytest.mark.looptime
async def test_large_logs_of_running_containers_are_rotated_also_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "LOG_MAX_BYTES", 4)
    for name in ("large", "small", "ended"):
        (tmp_path / name).write_text("x" if name == "small" else "xxxxx")
    seen = {
        name: (container(name, tmp_path / name, state),)
        for name, state in (
            ("large", ContainerState.RUNNING),
            ("small", ContainerState.RUNNING),
            ("ended", ContainerState.EXITED),
        )
    }
    reopened: list[str] = []

    async def reopen(id: str) -> None:
        reopened.append(id)
        if len(reopened) == 1:
            raise RuntimeFailure("not now")
        (tmp_path / id).touch()

    runtime: Any = Mock(reopen_log=reopen)
    sweep = AsyncMock()
    pleg: Any = Mock(uids=lambda: {"u"}, runtime_status=lambda _uid: PodRuntimeStatus((), seen))
    running = asyncio.create_task(Housekeeping(runtime, pleg, [sweep], Mock(), AsyncMock()).run())
    await asyncio.sleep(housekeeping.PERIOD_SECONDS + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ended", "large.1", "small"]
    await asyncio.sleep(housekeeping.PERIOD_SECONDS)
    assert reopened == ["large", "large"]
    await asyncio.sleep(housekeeping.PERIOD_SECONDS)
    assert (tmp_path / "large.1").read_text() == "xxxxx"
    assert len(reopened) == 2
    assert sweep.await_count == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.looptime
async def test_a_chore_that_fails_keeps_no_other_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    others, collect = AsyncMock(), AsyncMock()

    async def fail() -> None:
        raise RuntimeFailure("no link")

    runtime, pleg = Mock(), Mock(uids=set)
    shims = Mock(find=list)
    running = asyncio.create_task(Housekeeping(runtime, pleg, [fail, others], shims, collect).run())
    await asyncio.sleep(housekeeping.PERIOD_SECONDS * housekeeping.IMAGE_PERIOD_ROUNDS + 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert others.await_count == housekeeping.IMAGE_PERIOD_ROUNDS
    assert collect.await_count == 1
    assert "fail" in caplog.messages[0] and "no link" in caplog.messages[0]


async def test_a_container_that_is_removed_takes_all_its_logs_along(tmp_path: Path) -> None:
    for name in ("0.log", "0.log.1", "0.log.4", "1.log", "10.log"):
        (tmp_path / name).touch()
    ended = [container(name, tmp_path / f"{name}.log", ContainerState.EXITED) for name in ("1", "0")]
    pleg: Any = Mock(
        uids=lambda: {"u"}, runtime_status=lambda _uid: PodRuntimeStatus((), {"c": tuple(ended)})
    )
    runtime: Any = Mock(remove_container=AsyncMock())
    await Housekeeping(runtime, pleg, [], Mock(), AsyncMock()).remove_dead_containers()
    runtime.remove_container.assert_awaited_once_with("0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.log", "10.log"]


@pytest.mark.looptime
async def test_a_chore_that_fails_in_a_way_that_nobody_foresaw_is_done_again() -> None:
    chore = AsyncMock(side_effect=[ValueError("what a pod shows of itself"), None])
    pleg: Any = Mock(uids=set[str])
    running = asyncio.create_task(Housekeeping(Mock(), pleg, [chore], Mock(), AsyncMock()).run())
    await asyncio.sleep(2 * housekeeping.PERIOD_SECONDS + 1)
    assert chore.await_count == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_delays_double_up_to_a_limit_and_are_forgotten_after_a_quiet_time() -> None:
    backoff = Backoff(10, 300)
    now, delays = 0.0, []
    for _ in range(7):
        backoff.failed("k", now)
        delays.append(backoff.delay("k"))
        assert backoff.is_waiting("k", now + delays[-1] - 1)
        now += delays[-1]
        assert not backoff.is_waiting("k", now)
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    backoff.failed("k", now + 601)
    assert backoff.delay("k") == 10
    backoff.failed("k2", now)
    backoff.forget_prefix("k")
    assert (backoff.delay("k"), backoff.delay("k2")) == (0, 0)


@pytest.mark.looptime
async def test_shims_that_the_runtime_does_not_list_are_ended() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    shims = Mock(find=lambda: ["some"])
    shims.end.side_effect = lambda _shims, _known: loop.call_soon_threadsafe(ended.set)
    sandbox, made = Mock(id="sandbox"), Mock(id="made")
    runtime: Any = Mock(
        list_sandboxes=AsyncMock(return_value=[sandbox]), list_containers=AsyncMock(return_value=[made])
    )
    pleg: Any = Mock(uids=set)
    running = asyncio.create_task(Housekeeping(runtime, pleg, [AsyncMock()], shims, AsyncMock()).run())
    await ended.wait()
    shims.end.assert_called_once_with(["some"], {"sandbox", "made"})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
