"""Device plugins that come and go while virt-handler runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from virtplane.compute.handler.node.deviceplugin import DevicePlugin, Offer


class PluginSet:
    """The running plugins of some offers, one for each resource; their sockets are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, asyncio.Task[None]] = {}

    async def keep(self, offers: Sequence[Offer]) -> None:
        """Run the plugins of these offers alone: start those that are new, end the others."""
        wanted = {offer.resource: offer for offer in offers}
        for resource in self._running.keys() - wanted.keys():
            await self._stop(resource)
        for resource in wanted.keys() - self._running.keys():
            plugin = DevicePlugin(wanted[resource], self._folder)
            self._running[resource] = asyncio.create_task(plugin.run(), name=f"device-plugin-{resource}")

    async def close(self) -> None:
        """End all plugins."""
        await self.keep(())

    async def _stop(self, resource: str) -> None:
        task = self._running.pop(resource)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
