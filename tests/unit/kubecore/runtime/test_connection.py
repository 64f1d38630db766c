"""A process that has lost the API server is not ready, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubecore import errors
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.runtime.connection import Connection
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime


class Asked:
    """A connection that is being watched, and the answer that the API server gives."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.answer: StatusError | None = errors.StatusError(403, "Forbidden", "no")
        self.asked = 0
        self.api.reactions.append(self._react)
        self.client = self.api.client()
        self.connection = Connection(self.client)

    def _react(self, request: Request) -> StatusError | None:
        self.asked += request.path == "/version"
        return self.answer


@pytest.fixture
async def watched() -> AsyncIterator[Asked]:
    made = Asked()
    task = asyncio.create_task(made.connection.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.client.close()


async def test_a_refusal_is_an_answer_and_is_asked_for_twice_a_minute(watched: Asked) -> None:
    await asyncio.sleep(601)
    assert watched.connection.problem() == ""
    assert watched.asked <= 21


async def test_one_lost_request_says_nothing(watched: Asked) -> None:
    await asyncio.sleep(1)
    watched.answer = errors.service_unavailable("starting")
    await asyncio.sleep(32)
    assert watched.connection.problem() == ""


async def test_a_lost_api_server_is_told_within_a_minute_and_its_return_in_seconds(watched: Asked) -> None:
    await asyncio.sleep(1)
    watched.answer = errors.service_unavailable("gone")
    await asyncio.sleep(60)
    assert "gone" in watched.connection.problem()
    watched.answer = errors.StatusError(403, "Forbidden", "no")
    await asyncio.sleep(6)
    assert watched.connection.problem() == ""
