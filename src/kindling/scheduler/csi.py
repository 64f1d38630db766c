"""What scheduler, controllers and nodes must agree on about CSI volumes: their names, and who attaches them.

The names are those of Kubernetes: attachers, drivers and tools compute them as well. Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kubecore.json import JsonObject, get_bool, get_object, get_str

_PLUGIN = "kubernetes.io/csi/"
_SEPARATOR = "^"


@dataclass(frozen=True, slots=True)
class CsiVolume:
    """A volume as its driver knows it."""

    driver: str
    handle: str

    @property
    def unique_name(self) -> str:
        """The name in a node's ``volumesInUse`` and ``volumesAttached``."""
        return f"{_PLUGIN}{self.driver}{_SEPARATOR}{self.handle}"

    def attachment_name(self, node: str) -> str:
        """The name of the VolumeAttachment of this volume and a node."""
        digest = hashlib.sha256(f"{self.handle}{self.driver}{node}".encode()).hexdigest()
        return f"csi-{digest}"


def of_volume(persistent: JsonObject) -> CsiVolume | None:
    """The CSI volume behind a PersistentVolume; None if it is of another kind."""
    source = get_object(persistent, "spec", "csi")
    driver, handle = get_str(source, "driver"), get_str(source, "volumeHandle")
    return CsiVolume(driver, handle) if driver and handle else None


def of_unique_name(name: str) -> CsiVolume | None:
    """The reverse of `CsiVolume.unique_name`; None for volumes of other kinds."""
    driver, separator, handle = name.removeprefix(_PLUGIN).partition(_SEPARATOR)
    if not name.startswith(_PLUGIN) or not separator:
        return None
    return CsiVolume(driver, handle)


def inline_handle(pod_uid: str, volume: str) -> str:
    """The handle of an ephemeral volume that a pod describes inline."""
    return f"csi-{hashlib.sha256(f'{pod_uid}{volume}'.encode()).hexdigest()}"


def needs_attachment(driver: JsonObject | None) -> bool:
    """Whether volumes of a driver must be attached to a node before use, by its CSIDriver object.

    A driver without such an object attaches.
    """
    return driver is None or get_bool(driver, "spec", "attachRequired", default=True)
