"""Metrics of the host for its guest: their places, and the channel on which the guest asks for them."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import PRIVATE_DIRECTORY
from virtplane.compute.domain.xml import Element, element

DISK = f"{PRIVATE_DIRECTORY}/downwardapi-disks/vhostmd0"
"""The disk of a ``downwardMetrics`` volume."""

CHANNEL = "downwardmetrics-channel/downwardmetrics.sock"
"""The socket of the channel, below the launcher's private folder."""

_PORT = "org.github.vhostmd.1"


def render_channel(vmi: VirtualMachineInstance) -> list[Element]:
    """The channel, where the instance has one."""
    if vmi.spec.domain.devices.downward_metrics is None:
        return []
    source = element("source", {"mode": "bind", "path": f"{PRIVATE_DIRECTORY}/{CHANNEL}"})
    target = element("target", {"type": "virtio", "name": _PORT})
    return [element("channel", {"type": "unix"}, source, target)]
