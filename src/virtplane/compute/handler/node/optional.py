"""Device plugins for devices that the installation's configuration allows or forbids while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node.deviceplugin import Device, DevicePlugin, Offer

_VSOCK = Path("/dev/vhost-vsock")


def allowed(config: ClusterConfig, guests: Callable[[], int], vsock: Path = _VSOCK) -> Sequence[Offer]:
    """The devices that this node offers under these settings."""
    has_vsock = config.gate("VSOCK") and vsock.exists()
    return [Device("vhost-vsock", str(vsock), guests)] if has_vsock else []


class OptionalPlugins:
    """Runs a plugin for each device that `wanted` names, as it does so."""

    def __init__(self, folder: Path, wanted: Callable[[], Sequence[Offer]]) -> None:
        self._folder = folder
        self._wanted = wanted
        self._wake = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}

    def look_again(self) -> None:
        """Look soon: the configuration may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Start and end plugins until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self.look()
                await self._wake.wait()
        finally:
            for name in list(self._running):
                await self._stop(name)

    async def look(self) -> None:
        """Start and end plugins once."""
        wanted = {offer.name: offer for offer in self._wanted()}
        for name in [name for name in self._running if name not in wanted]:
            await self._stop(name)
        for name, offer in wanted.items():
            if name not in self._running:
                plugin = DevicePlugin(offer, self._folder)
                self._running[name] = asyncio.create_task(plugin.run(), name=f"device-plugin-{name}")

    async def _stop(self, name: str) -> None:
        task = self._running.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
