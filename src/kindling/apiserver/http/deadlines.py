"""The ``timeout`` query parameter: how long the client waits for a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from kubecore import errors
from kubecore.objects import durations

from .call import Call

LONGEST_SECONDS = 60.0
"""Whoever asks for more time gets this much."""
_LASTING = frozenset({"attach", "exec", "log", "portforward", "proxy"})

Outcome = TypeVar("Outcome")


def seconds_of(call: Call) -> float | None:
    """The request's timeout in seconds; None without one and for long-running requests. Raises StatusError
    (400).
    """
    text = call.query.get("timeout")
    if not text:
        return None
    info = call.info
    if info.verb in ("watch", "proxy") or info.subresource in _LASTING:
        return None
    try:
        seconds = durations.seconds_of(text)
    except ValueError as error:
        raise errors.bad_request(f"invalid timeout specified in the request URL - {error}") from error
    return seconds if 0 < seconds < LONGEST_SECONDS else LONGEST_SECONDS


class Deadlines:
    """Enforces request timeouts. A write that has begun is finished all the same, because it cannot be
    undone.
    """

    def __init__(self) -> None:
        self._late: set[asyncio.Future[Any]] = set()

    async def within(self, seconds: float, answering: Awaitable[Outcome]) -> Outcome:
        """The result of `answering`. Raises StatusError (504) after `seconds`."""
        task = asyncio.ensure_future(answering)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        self._late.add(task)
        task.add_done_callback(self._forget)
        raise errors.timeout("request did not complete within requested timeout - context deadline exceeded")

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the client has disconnected
