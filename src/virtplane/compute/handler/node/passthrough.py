"""Device plugins for the devices that guests may have, as the installation's configuration changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubecore.json import JsonObject
from virtplane.api.kubevirt_v1.device_configuration import PermittedHostDevices
from virtplane.compute.domain.hostdevices import variable
from virtplane.compute.handler.node.deviceplugin import device_spec
from virtplane.compute.handler.node.hostdevices import Resource, permitted
from virtplane.compute.handler.node.pluginset import PluginSet
from virtplane.compute.handler.node.rounds import Rounds

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0
_NOT_IN_FILE_NAMES = str.maketrans("/.", "--")


@dataclass(slots=True)
class ResourceOffer:
    """The devices of one resource; `found` is replaced when the node has others."""

    found: Resource

    @property
    def name(self) -> str:
        """The resource's name, as part of a file's."""
        return self.found.name.translate(_NOT_IN_FILE_NAMES)

    @property
    def resource(self) -> str:
        """The resource's name."""
        return self.found.name

    def units(self) -> Mapping[str, bool]:
        """The devices, each of which one container can have."""
        return {device.id: True for device in self.found.devices}

    def allocation(self, ids: Sequence[str]) -> JsonObject:
        """The nodes of the devices, and their names in the environment."""
        chosen = [device for device in self.found.devices if device.id in ids]
        nodes = dict.fromkeys(node for device in chosen for node in device.nodes)
        names = ",".join(device.name for device in chosen)
        return {
            "envs": {variable(self.found.prefix, self.found.name): names},
            "devices": [device_spec(node) for node in nodes],
        }


class PassthroughPlugins:
    """Runs a plugin for each permitted resource that this node has devices of."""

    def __init__(
        self,
        folder: Path,
        settings: Callable[[], PermittedHostDevices | None],
        system: Path = Path("/sys"),
    ) -> None:
        self._settings = settings
        self._system = system
        self.rounds = Rounds()
        self._offers: dict[str, ResourceOffer] = {}
        self._plugins = PluginSet(folder)

    async def run(self) -> None:
        """Look at the configuration and the devices until cancelled."""
        try:
            await self.rounds.run(self.look)
        finally:
            await self._plugins.close()

    async def look(self) -> float:
        """Start, update and end plugins once; gives the seconds until that is to be done again."""
        wanted = {resource.name: resource for resource in permitted(self._settings(), self._system)}
        for name in self._offers.keys() - wanted.keys():
            del self._offers[name]
        for name, resource in wanted.items():
            if name in self._offers:
                self._offers[name].found = resource
                continue
            self._offers[name] = ResourceOffer(resource)
            logger.info("Devices of the node are offered to guests", extra={"resource": name})
        await self._plugins.keep(list(self._offers.values()))
        return _LOOK_SECONDS
