"""Running programs beside an event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.waiting import until

from kubecore import programs
from kubecore.programs import Ended


async def test_a_program_gets_its_input_and_tells_how_it_ended() -> None:
    script = "cat; echo problem >&2; exit 3"
    assert await programs.run(["sh", "-c", script], b"given") == Ended(3, b"given", b"problem\n")


async def test_a_program_need_not_read_its_input() -> None:
    assert (await programs.run(["true"], b"x" * 1_000_000)).code == 0


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await programs.run(["/nonexistent"])


async def test_the_signal_that_ended_a_program_is_told() -> None:
    assert (await programs.run(["sh", "-c", "kill -9 $$"])).code == -9


async def test_a_program_of_a_cancelled_task_is_gone_when_the_task_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pid"
    script = f"echo $$ >{pipe}.new && mv {pipe}.new {pipe} && exec sleep 600"
    task = asyncio.create_task(programs.run(["sh", "-c", script]))
    await until(pipe.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pipe.read_text().strip()}").exists()


def test_a_program_that_nobody_wants_any_more_is_not_started(tmp_path: Path) -> None:
    program = programs._Program(["touch", str(tmp_path / "made")], b"")
    program.kill()
    program.run()
    assert not (tmp_path / "made").exists()
