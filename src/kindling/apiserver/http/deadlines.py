"""The ``timeout`` query parameter: how long the client waits for a response."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Any, TypeVar

from kubecore import errors
from kubecore.objects.fields import go_quote

from .call import Call

LONGEST_SECONDS = 60.0
"""Whoever asks for more time gets this much."""
_LASTING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_SECONDS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")

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
        seconds = duration(text)
    except ValueError as error:
        raise errors.bad_request(f"invalid timeout specified in the request URL - {error}") from error
    return seconds if 0 < seconds < LONGEST_SECONDS else LONGEST_SECONDS


def duration(text: str) -> float:
    """The seconds of a Go duration such as ``1m30s``. Raises ValueError with Go's message."""
    rest = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if rest == "0":
        return 0.0
    parts = [found.groups() for found in _PART.finditer(rest) if found[0]]
    if not parts or any(not whole and fraction in (None, ".") for whole, fraction, _ in parts):
        raise ValueError(f"time: invalid duration {go_quote(text)}")
    total = 0.0
    for whole, fraction, unit in parts:
        if not unit:
            raise ValueError(f"time: missing unit in duration {go_quote(text)}")
        if unit not in _SECONDS:
            raise ValueError(f"time: unknown unit {go_quote(unit)} in duration {go_quote(text)}")
        total += float(f"{whole or 0}{fraction or ''}") * _SECONDS[unit]
    return -total if text.startswith("-") else total


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
