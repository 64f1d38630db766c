"""Requests to the API server with a timeout, or repeated until it answers: it may be unavailable for long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubecore.client import ConfigError, ConnectionFailed
from kubecore.errors import StatusError
from virtplane.compute.handler.troubles import Trouble

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

REQUEST_SECONDS = 30.0
"""Less than the client's own bound: reports of a guest must not be held up for two minutes."""

RETRY_SECONDS = 1.0

FAILURES = (StatusError, ConnectionFailed, ConfigError)
"""What `in_time` raises: the API refuses or cannot be reached, or our credentials cannot be read just now."""


async def in_time(request: Awaitable[_Result]) -> _Result:
    """Await one request. Raises what it raises, and ConnectionFailed after `REQUEST_SECONDS`."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            return await request
    except TimeoutError as error:
        raise ConnectionFailed(f"the API server did not answer within {REQUEST_SECONDS:g} s") from error


async def until_answered(purpose: str, ask: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeat a request until it succeeds. A failure is logged once, with the `purpose`."""
    trouble = Trouble(logger, "The API server does not answer; trying again", purpose=purpose)
    while True:
        try:
            return await in_time(ask())
        except FAILURES as error:
            trouble.met(error)
        await asyncio.sleep(RETRY_SECONDS)
