"""Device plugins for devices that the installation's configuration allows or forbids while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubecore.json import JsonObject
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.node.deviceplugin import Device, Offer
from virtplane.compute.handler.node.pluginset import PluginSet
from virtplane.compute.handler.node.rounds import Rounds

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
        self._wanted = wanted
        self.rounds = Rounds()
        self._plugins = PluginSet(folder)

    async def run(self) -> None:
        """Start and end plugins until cancelled."""
        try:
            await self.rounds.run(self.look)
        finally:
            await self._plugins.close()

    async def look(self) -> None:
        """Start and end plugins once."""
        await self._plugins.keep(self._wanted())
