"""Forgetting history by age. (The store itself bounds it by number and size.)"""

from __future__ import annotations

import asyncio

from .store import Store

_CHUNK = 500
"""Events forgotten at once: removing their rows must not hold up writes."""
_PAUSE_SECONDS = 0.05


class Compactor:
    """Forgets what is older than `seconds`, as kube-apiserver has etcd do every five minutes.

    What happened is known by revision, not by time: each turn forgets up to the revision that was current
    one turn ago. So history reaches back for one to two times `seconds`.
    """

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    async def run(self) -> None:
        """Until cancelled."""
        revision = self._store.revision
        while True:
            await asyncio.sleep(self._seconds)
            due, revision = revision, self._store.revision
            await self._forget(due)

    async def _forget(self, revision: int) -> None:
        while True:
            if not self._store.compact(revision, _CHUNK):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
