"""Which nodes use a volume's image, and its loop device.

A node writes its name into the volume's folder before it attaches the image and removes it when it is done.
With the name is the boot of its kernel: a file system must not be mounted by two kernels, and what a node
used before it was restarted it no longer uses.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from pathlib import Path

from kubecore import loop_devices
from virtplane.storage.hostpath import images, mounts
from virtplane.storage.hostpath.failures import Code, CsiFailure
from virtplane.storage.hostpath.locks import locked
from virtplane.storage.hostpath.pool import FILE_SYSTEM, Pool, Volume, sync_folder

_log = logging.getLogger(__name__)

_NO_OVERLAYS = (errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def tail(identifier: str) -> str:
    """The end of an image's path, which all nodes see alike."""
    return f"/volumes/{identifier}/disk"


def boot() -> str:
    """This boot of this kernel. Raises OSError."""
    return _BOOT.read_text().strip()


def users(pool: Pool, identifier: str) -> dict[str, str]:
    """The nodes that use a volume, each with the boot of its kernel. Raises OSError."""
    folder, found = pool.record_folder(identifier) / "users", {}
    with suppress(FileNotFoundError):
        for entry in folder.iterdir():
            with suppress(FileNotFoundError):  # it no longer uses the volume
                found[entry.name] = entry.read_text()
    return found


def add_user(pool: Pool, volume: Volume, node: str) -> None:
    """Write down that `node` uses a volume. Raises CsiFailure if another machine has it mounted; OSError."""
    this = boot()
    if volume.content.mode == FILE_SYSTEM:
        for other, its_boot in users(pool, volume.id).items():
            if other != node and its_boot != this:
                raise CsiFailure(
                    Code.FAILED_PRECONDITION,
                    f"the file system of volume {volume.id} is mounted on {other}, which is another machine;"
                    f" if that node is gone, remove users/{other} in the volume's folder",
                )
    folder = pool.record_folder(volume.id) / "users"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / node).write_text(this)
    sync_folder(folder)


def take(pool: Pool, volume: Volume, node: str, staging: Path) -> None:
    """Fail while another node of this machine uses a volume of one node, or pods that are there still do.

    The list of users alone does not say: a node that was switched off leaves its name there. One whose link
    is cut does too, but writes on, whatever Kubernetes believes; so the kernel is asked.
    Raises CsiFailure, OSError.
    """
    if not pool.info.shared:
        return
    this = boot()
    found = users(pool, volume.id).items()
    others = sorted(name for name, its_boot in found if name != node and its_boot == this)
    if volume.content.mode == FILE_SYSTEM:
        is_held = bool(others) and _is_mounted(pool, volume)
    else:
        try:
            is_held = not _claim(pool, volume, staging)
        except OSError as error:
            if error.errno not in _NO_OVERLAYS:
                raise
            _log.warning(
                "volume %s may be used on two nodes at a time, because its pool cannot have layers of"
                " overlays (%s); use XFS or ext4",
                volume.id,
                error,
            )
            return
    if others and is_held:
        raise CsiFailure(
            Code.FAILED_PRECONDITION,
            f"volume {volume.id} can be used on one node at a time, and is in use on"
            f" {', '.join(others)}; it is free when the pods with it have ended there",
        )
    for other in others:
        remove_user(pool, volume.id, other)


def _is_mounted(pool: Pool, volume: Volume) -> bool:
    with pool.image(volume.id).open("rb") as file:
        loop = loop_devices.find(file.fileno(), tail(volume.id))
    if loop is None:
        return False
    with loop:
        return loop.is_mounted()


def _claim(pool: Pool, volume: Volume, staging: Path) -> bool:
    """Mount at `staging` what can be mounted once: an overlay with layers of its own in the volume's folder.

    A device can be open on any number of nodes and the kernel does not say on which. It does refuse a second
    overlay over the same layers, and the first one goes with its node's mount namespace. Raises OSError.
    """
    layers = [pool.record_folder(volume.id) / "claim" / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        mounts.mount_overlay(*layers, target=staging)
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def remove_user(pool: Pool, identifier: str, node: str) -> None:
    """Write down that `node` no longer uses a volume. Raises OSError."""
    (pool.record_folder(identifier) / "users" / node).unlink(missing_ok=True)


def detach_unused(pool: Pool, identifier: str) -> None:
    """Detach a volume's loop device if no node of this machine uses it. Raises OSError."""
    this = boot()
    if this in users(pool, identifier).values():
        return
    with pool.image(identifier).open("rb") as file:
        loop = loop_devices.find(file.fileno(), tail(identifier))
        if loop is not None:
            with loop:
                loop.detach()


def copy_image(pool: Pool, volume: Volume, target: Path) -> None:
    """Copy a volume's image, by sharing its blocks; block by block only while nobody uses it.

    Raises CsiFailure, OSError, images.CannotShare.
    """
    flush(pool, volume)
    try:
        images.clone(pool.image(volume.id), target)
    except images.CannotShare:
        # With the volume locked, nobody begins to use it before the copy is complete.
        with locked(pool.record_folder(volume.id), f"volume {volume.id}"):
            if flush(pool, volume):
                raise
            images.copy(pool.image(volume.id), target)


def flush(pool: Pool, volume: Volume) -> bool:
    """Write out what this machine has of an image in memory; gives whether the image is in use.

    A file system that any node of this machine has mounted is mounted once more for it, which costs nothing:
    it is the same one. Raises OSError.
    """
    with pool.image(volume.id).open("rb") as file:
        loop = loop_devices.find(file.fileno(), tail(volume.id))
    if loop is None:
        return bool(users(pool, volume.id))
    with loop:
        if volume.content.mode == FILE_SYSTEM and loop.is_mounted():
            with pool.workplace() as place:
                mounts.mount_device(
                    loop.path, place, volume.content.fs_type, images.mount_options(volume.content.fs_type)
                )
                try:
                    mounts.sync_file_system(place)
                finally:
                    mounts.unmount(place)
    return True
