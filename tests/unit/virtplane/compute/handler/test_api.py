"""Requests to an API that refuses, breaks off, or never answers; in virtual time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kubecore.client import ConfigError, ConnectionFailed
from kubecore.errors import StatusError
from virtplane.compute.handler.api import REQUEST_SECONDS, in_time, until_answered

pytestmark = pytest.mark.looptime


async def never() -> int:
    await asyncio.Event().wait()
    return 0


async def test_request_without_answer_fails_after_its_time() -> None:
    begun = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionFailed, match="did not answer within 30 s"):
        await in_time(never())
    assert asyncio.get_running_loop().time() - begun == pytest.approx(REQUEST_SECONDS)


async def test_trouble_is_outlasted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    trouble = [
        *[StatusError(500, "InternalError", "broken")] * 100,
        ConnectionFailed("gone"),
        ConfigError("token"),
    ]

    async def ask() -> str:
        if trouble:
            raise trouble.pop(0)
        return "answer"

    with caplog.at_level(logging.WARNING):
        assert await until_answered("the configuration", ask) == "answer"
    assert [getattr(record, "err", "") for record in caplog.records] == ["broken", "gone", "token"]
