"""How commands that run until they are stopped end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest

from kubecore.client import ConfigError
from kubecore.runtime import CannotRun
from virtplane.process import run_until_stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_an_orderly_end(number: signal.Signals) -> None:
    undone = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            undone.append(number)

    assert run_until_stopped(work()) == 0
    assert undone == [number]


@pytest.mark.parametrize("refusal", [CannotRun("set NODE_NAME"), ConfigError("stat /a: no such file")])
def test_a_refusal_is_told_without_a_traceback(refusal: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse() -> None:
        raise refusal

    async def refuse_in_groups() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(refuse())

    for work in (refuse(), refuse_in_groups()):
        caplog.clear()
        assert run_until_stopped(work) == 1
        (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert (record.getMessage(), record.exc_info) == (str(refusal), None)


def test_what_was_not_expected_is_told_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no such device")

    async def fail_in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    for work in (fail(), fail_in_a_group()):
        caplog.clear()
        assert run_until_stopped(work) == 1
        assert "no such device" in caplog.text
        assert "Traceback" in caplog.text
