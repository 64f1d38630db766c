"""The condition of volumes, and the space on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from virtplane.storage.hostpath import mounts
from virtplane.storage.hostpath.pool import IMAGE, Pool, Volume

_BYTES, _INODES = 1, 2
_GIB, _MIB = 1 << 30, 1 << 20


def rounded_down(size: int) -> int:
    """A size as upstream reports it: whole GiB from ten on, else whole MiB from ten on."""
    for unit in (_GIB, _MIB):
        if size // unit >= 10:
            return size // unit * unit
    return size


def of_source(pool: Pool, volume: Volume) -> dict[str, Any]:
    """The condition of a volume as the controller sees it."""
    path = pool.image(volume.id) if volume.content.format == IMAGE else pool.directory(volume.id)
    if not path.exists():
        return condition("The source path of the volume doesn't exist")
    return of_space(pool.space())


def of_mounted(path: Path) -> dict[str, Any]:
    """The condition of a volume that should be mounted at `path`. Raises OSError."""
    if not mounts.is_mounted(path):
        return condition("The volume isn't mounted")
    return of_space(os.statvfs(path))


def of_space(space: os.statvfs_result) -> dict[str, Any]:
    """Whether a file system has room."""
    if space.f_bavail == 0:
        return condition("No space left on device")
    if space.f_files and space.f_ffree == 0:
        return condition("No inodes remaining on device")
    return condition("")


def condition(problem: str) -> dict[str, Any]:
    """A VolumeCondition; an empty `problem` is none."""
    return {"abnormal": bool(problem), "message": problem}


def usage(space: os.statvfs_result) -> list[dict[str, Any]]:
    """VolumeUsage of a file system, in bytes and in inodes."""
    block = space.f_frsize
    return [
        {
            "available": space.f_bavail * block,
            "used": (space.f_blocks - space.f_bfree) * block,
            "total": space.f_blocks * block,
            "unit": _BYTES,
        },
        {
            "available": space.f_ffree,
            "used": space.f_files - space.f_ffree,
            "total": space.f_files,
            "unit": _INODES,
        },
    ]


def device_usage(size: int) -> list[dict[str, Any]]:
    """VolumeUsage of a block device: what of it is used only its user knows."""
    return [{"total": size, "unit": _BYTES}]
