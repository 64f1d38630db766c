"""Devices of block volumes, kept where a kubelet keeps them.

A loop device holds each published device open: as long as pods use a volume, nothing else can take the place
of its device. One loop device does for all pods to which the driver has published the same file; a driver
that was started again may publish another file for the same device.
"""

from __future__ import annotations

from pathlib import Path

from kindling.node.pods import identity
from kindling.node.volumes import loop_devices, mounts
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi_records import Record


def pod_link(record: Record) -> Path:
    """The link to the device in the pod's directory."""
    return identity.pod_directory(record.pod_uid) / "volumeDevices" / "kubernetes.io~csi" / record.volume


def global_map(record: Record) -> Path:
    """Where the pod's device is bound, beside those of other pods of the volume."""
    base = identity.ROOT / "plugins/kubernetes.io/csi/volumeDevices"
    return base / record.volume / "dev" / record.pod_uid


async def map_device(record: Record) -> None:
    """Link, bind and hold a published device. Raises ContentProblem, OSError."""
    if not record.target.is_block_device():
        raise ContentProblem(f"driver {record.driver} published no block device at {record.target}")
    link, bound = pod_link(record), global_map(record)
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if not link.is_symlink():
        link.symlink_to(record.target)
    bound.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    bound.touch(exist_ok=True)
    if not mounts.is_mounted(bound):
        mounts.bind(str(record.target), bound)
    await loop_devices.attach(bound)


async def unmap_device(record: Record) -> None:
    """Undo `map_device`, also one that was interrupted. Raises OSError."""
    bound = global_map(record)
    if bound.is_block_device() and not _is_held_for_others(bound):
        for device in await loop_devices.devices_of(bound):
            await loop_devices.detach(device)
    mounts.unmount(bound)
    if mounts.is_mounted(bound):
        raise OSError(f"{bound} is still mounted")
    bound.unlink(missing_ok=True)
    pod_link(record).unlink(missing_ok=True)
    for directory in (bound.parent, bound.parent.parent):
        try:
            directory.rmdir()
        except OSError:
            return  # other pods use the volume


def _is_held_for_others(bound: Path) -> bool:
    """Whether another pod of the volume has the same file, and thereby the same loop device."""
    return any(other != bound and other.samefile(bound) for other in bound.parent.iterdir())
