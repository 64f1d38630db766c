"""How far a worker is, as its metrics say."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Protocol

import aiohttp

from virtplane.storage.cdi.controller.pods.worker import PORT

logger = logging.getLogger(__name__)

COMPLETE = "100.0%"
SECONDS = 2.0
"""How often progress is asked for."""
_TIMEOUT_SECONDS = 2.0
_PATIENCE_SECONDS = 0.1
"""How long a controller waits for an answer: each of them has a few workers for all tenants."""
_KEPT_SECONDS = 30.0
"""How long an answer that came later waits to be asked for."""
_MOST_BYTES = 64 << 10
_VALUE = re.compile(r"[0-9.eE+]{1,32}")


class Progress(Protocol):
    """Asks a worker pod how far it is."""

    async def percent(self, address: str, owner_uid: str) -> str | None:
        """The share that is done, such as ``12.34%``, for `owner_uid`; None where nobody says."""


class ScrapedProgress:
    """Reads the metrics that a worker serves. Its certificate proves nothing, and nothing secret is sent.

    Tenants can put anything in the place of a worker: what it sends is bounded, and nobody waits for it.
    """

    def __init__(
        self,
        what: str = "import",
        port: int = PORT,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
        valid_seconds: float = SECONDS,
    ) -> None:
        self._metric, self._port = f"kubevirt_cdi_{what}_progress_total", port
        self._timeout_seconds, self._patience_seconds = timeout_seconds, patience_seconds
        self._valid_seconds = valid_seconds
        self._asked: dict[tuple[str, str], asyncio.Task[str | None]] = {}
        self._told: set[asyncio.Task[str | None]] = set()
        """Whose answers somebody has: they are forgotten soon."""

    async def percent(self, address: str, owner_uid: str) -> str | None:
        """The share that is done; None where the worker has not answered yet: it has when it is asked again,
        or it does not answer in time.

        An answer holds for `valid_seconds`: to write it down is an event on which controllers ask again.
        """
        key = (address, owner_uid)
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._read(address, owner_uid))
            task.add_done_callback(lambda done: self._keep(key, done))
        await asyncio.wait({task}, timeout=self._patience_seconds)
        if not task.done():
            return None
        if task not in self._told:
            self._told.add(task)
            asyncio.get_running_loop().call_later(self._valid_seconds, self._forget, key, task)
        return task.result()

    def _keep(self, key: tuple[str, str], task: asyncio.Task[str | None]) -> None:
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget, key, task)

    def _forget(self, key: tuple[str, str], task: asyncio.Task[str | None]) -> None:
        self._told.discard(task)
        if self._asked.get(key) is task:
            del self._asked[key]

    async def _read(self, address: str, owner_uid: str) -> str | None:
        host = f"[{address}]" if ":" in address else address
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.get(
                    f"https://{host}:{self._port}/metrics", ssl=False, allow_redirects=False
                ) as answer,
            ):
                text = (await _beginning(answer.content)).decode(errors="replace")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            logger.debug("no progress from %s, which is asked again: %s", address, error)
            return None
        return parsed(text, self._metric, owner_uid)


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    kept = b""
    while len(kept) < _MOST_BYTES and (piece := await content.readany()):
        kept += piece
    return kept[:_MOST_BYTES]


def parsed(text: str, metric: str, owner_uid: str) -> str | None:
    """The value of a metric for `owner_uid` in Prometheus' format, as a share in per cent.

    The text is a stranger's: the time that this takes grows with its length, not faster.
    """
    label = f'ownerUID="{owner_uid}"'
    for line in text.split("\n"):
        head, _, value = line.rpartition("} ")
        name, brace, labels = head.partition("{")
        if name != metric or not brace or "}" in labels or label not in labels:
            continue
        if _VALUE.fullmatch(value) is None:
            continue
        try:
            return f"{min(float(value), 100.0):.2f}%"
        except ValueError:
            return None
    return None
