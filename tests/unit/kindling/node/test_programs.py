"""Programs that the agent runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.waiting import until

from kindling.node.programs import run_program


async def test_exit_codes_and_outputs_are_told() -> None:
    script = "echo out; echo problem >&2; exit 3"
    assert await run_program("sh", "-c", script, seconds=10) == (3, "out", "problem")
    with pytest.raises(FileNotFoundError):
        await run_program("/nonexistent", seconds=10)


async def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(TimeoutError, match="has not ended within"):
        await run_program("sleep", "600", seconds=0.05)


async def test_a_program_of_a_cancelled_task_is_gone_when_the_task_is(tmp_path: Path) -> None:
    """A pod that is deleted interrupts what its worker waits for; losetup or ctr must not go on alone."""
    pipe = tmp_path / "pipe"
    script = f"echo $$ >{pipe}.pid && mv {pipe}.pid {pipe} && exec sleep 600"
    task = asyncio.create_task(run_program("sh", "-c", script, seconds=600))
    await until(pipe.exists)
    pid = int(pipe.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid}").exists()
