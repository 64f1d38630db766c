"""Whether the API server answers this process: a readiness check."""

from __future__ import annotations

import asyncio
import logging

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 30.0
_RETRY_SECONDS = 5.0
_TIMEOUT_SECONDS = 5.0
_LOST = 3
"""So many requests in a row without an answer are no accident."""


class Connection:
    """Asks the API server for its version now and then, through a client of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._failures = 0
        self._reason = ""

    def problem(self) -> str:
        """Why the API server counts as lost; empty while it answers."""
        return f"the API server does not answer: {self._reason}" if self._failures >= _LOST else ""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            reason = await self._ask()
            if reason:
                self._failures += 1
                self._reason = reason
            elif self._failures:
                logger.info("the API server answers again", extra={"failures": self._failures})
                self._failures = 0
            await asyncio.sleep(_RETRY_SECONDS if reason else _INTERVAL_SECONDS)

    async def _ask(self) -> str:
        """What is wrong; a refusal is an answer."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._client.request("GET", "/version")
        except TimeoutError:
            return f"no answer within {_TIMEOUT_SECONDS:.0f} s"
        except ConnectionFailed as error:
            return str(error)
        except StatusError as error:
            return str(error) if error.code >= 500 else ""
        return ""
