"""Limits of volumes that drivers change while they run (``nodeAllocatableUpdatePeriodSeconds``)."""

from __future__ import annotations

import asyncio
import logging

from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi_registry import CsiRegistry
from kindling.node.volumes.csi_requests import CsiRequests
from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import get_object

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
"""The shortest period that a driver may ask for."""


class LimitUpdates:
    """Asks drivers for their limits as often as their CSIDriver objects say."""

    def __init__(self, registry: CsiRegistry, requests: CsiRequests) -> None:
        self._registry = registry
        self._requests = requests
        self._asked: dict[str, float] = {}
        """When a driver was last asked, by the loop's clock."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            names = self._registry.names()
            self._asked = {name: when for name, when in self._asked.items() if name in names}
            await asyncio.gather(*(self._look(name) for name in names))

    async def _look(self, name: str) -> None:
        now = asyncio.get_running_loop().time()
        try:
            rules = await self._requests.rules(name)
            period = get_object(rules or {}, "spec").get("nodeAllocatableUpdatePeriodSeconds")
            if not isinstance(period, int):
                return
            if now - self._asked.setdefault(name, now) >= period:
                self._asked[name] = now
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._registry.refresh(name)
        except (ContentProblem, StatusError, ConnectionFailed, TimeoutError) as problem:
            _log.warning("the limits of CSI driver %s are not up to date, trying again: %s", name, problem)
