"""Device plugins for devices that the installation's configuration allows or forbids while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubecore.json import JsonObject
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node.deviceplugin import Device, DevicePlugin, Offer

_VSOCK = Path("/dev/vhost-vsock")


@dataclass(frozen=True, slots=True)
class ReservationHelper:
    """The helper that makes SCSI persistent reservations for guests, by the socket where it listens."""

    guests: Callable[[], int]
    socket: Path = Path(paths.RESERVATION_HELPER)
    name: str = "pr-helper"

    @property
    def resource(self) -> str:
        """The resource's name in pods and nodes."""
        return f"devices.kubevirt.io/{self.name}"

    def units(self) -> Mapping[str, bool]:
        """The same socket many times; it can be used while the helper runs."""
        numbers = range(max(0, self.guests()))
        return dict.fromkeys((f"{self.name}{number}" for number in numbers), self.socket.is_socket())

    def allocation(self, ids: Sequence[str]) -> JsonObject:
        """The folder of the socket: after a restart the helper listens on another one of that name."""
        folder = str(self.socket.parent)
        mount = {"container_path": folder, "host_path": folder, "read_only": True}
        return {"mounts": [mount]} if ids else {}


def allowed(config: ClusterConfig, guests: Callable[[], int], vsock: Path = _VSOCK) -> Sequence[Offer]:
    """The devices that this node offers under these settings."""
    offers: list[Offer] = []
    if config.gate("VSOCK") and vsock.exists():
        offers.append(Device("vhost-vsock", str(vsock), guests))
    if config.persistent_reservation:
        offers.append(ReservationHelper(guests))
    return offers


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
