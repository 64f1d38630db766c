"""A reconcile loop with a single key: it runs again after every change of its inputs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kubecore import errors

_LOG = logging.getLogger(__name__)


class ReconcileLoop:
    """Runs `work` after ``changed``; changes during a run are coalesced into one more run."""

    def __init__(self, work: Callable[[], Awaitable[None]], failure: str) -> None:
        """`failure` is what the log says when an attempt fails; the next change is the next attempt."""
        self._work = work
        self._failure = failure
        self._dirty = asyncio.Event()

    def changed(self) -> None:
        """Request another run: an input changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._work()
            except errors.StatusError as error:
                _LOG.warning(self._failure, extra={"err": str(error)})
