"""CSI's Identity service."""

from __future__ import annotations

from typing import Any

from kubecore.wire import Message
from virtplane.storage.hostpath.configuration import Configuration

_CONTROLLER, _ACCESSIBILITY = 1, 2
_ONLINE = 1


class Identity:
    """Who the driver is, and what it can do."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def get_plugin_info(self, _: Message) -> dict[str, Any]:
        """The driver's name and version."""
        return {"name": self._configuration.driver_name, "vendor_version": self._configuration.version}

    def get_plugin_capabilities(self, _: Message) -> dict[str, Any]:
        """There is a controller service, volumes belong to nodes, and grow while they are used."""
        return {
            "capabilities": [
                {"service": {"type": _CONTROLLER}},
                {"service": {"type": _ACCESSIBILITY}},
                {"volume_expansion": {"type": _ONLINE}},
            ]
        }

    def probe(self, _: Message) -> dict[str, Any]:
        """The driver answers once it is ready."""
        return {"ready": {"value": True}}
