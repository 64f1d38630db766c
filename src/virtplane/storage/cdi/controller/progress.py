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
_MOST_BYTES = 1 << 20


class Progress(Protocol):
    """Asks a worker pod how far it is."""

    async def percent(self, address: str, owner_uid: str) -> str | None:
        """The share that is done, such as ``12.34%``, for `owner_uid`; None where nobody says."""


class ScrapedProgress:
    """Reads the metrics that a worker serves. Its certificate proves nothing, and nothing secret is sent."""

    def __init__(
        self, what: str = "import", port: int = PORT, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> None:
        self._metric, self._port = f"kubevirt_cdi_{what}_progress_total", port
        self._timeout_seconds = timeout_seconds

    async def percent(self, address: str, owner_uid: str) -> str | None:
        """The share that is done; None where the worker does not answer in time."""
        host = f"[{address}]" if ":" in address else address
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                aiohttp.ClientSession() as session,
                session.get(
                    f"https://{host}:{self._port}/metrics", ssl=False, allow_redirects=False
                ) as answer,
            ):
                text = (await answer.content.read(_MOST_BYTES)).decode(errors="replace")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            logger.debug("no progress from %s, which is asked again: %s", address, error)
            return None
        return parsed(text, self._metric, owner_uid)


def parsed(text: str, metric: str, owner_uid: str) -> str | None:
    """The value of a metric for `owner_uid` in Prometheus' format, as a share in per cent."""
    label = re.escape(f'ownerUID="{owner_uid}"')
    found = re.search(rf"^{metric}\{{[^}}\n]*{label}[^}}\n]*\}} ([0-9.eE+]{{1,32}})$", text, re.MULTILINE)
    if found is None:
        return None
    try:
        value = float(found.group(1))
    except ValueError:
        return None
    return f"{min(value, 100.0):.2f}%"
