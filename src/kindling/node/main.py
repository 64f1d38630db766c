"""The process ``kindling node NAME``: enter the node's namespaces, then run its agent."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


async def until_signalled(run: Callable[[], Awaitable[None]]) -> None:
    """Run until SIGTERM or SIGINT, then cancel and wait for an orderly end."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        _log.info("stopping")
