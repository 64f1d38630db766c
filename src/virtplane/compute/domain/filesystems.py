"""``<filesystem>`` elements: folders of the pod that servers of their own share with the guest (virtiofs)."""

from __future__ import annotations

from virtplane.api import paths
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.xml import Element, element

_QUEUE_SIZE = 1024


def socket_path(name: str) -> str:
    """Where the server of the file system `name` listens, in the launcher's container and its own."""
    return f"{paths.SHARE_DIR}/virtiofs-containers/{name}.sock"


def render_filesystems(vmi: VirtualMachineInstance) -> list[Element]:
    """The file systems, which the guest mounts by their names."""
    return [
        element(
            "filesystem",
            {"type": "mount"},
            element("driver", {"type": "virtiofs", "queue": _QUEUE_SIZE}),
            element("source", {"socket": socket_path(filesystem.name)}),
            element("target", {"dir": filesystem.name}),
        )
        for filesystem in vmi.spec.domain.devices.filesystems
    ]
