"""What a driver does when it starts: finish or undo what one that was killed left."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from kubecore import loop_devices, mountinfo
from virtplane.storage.hostpath import locks, mounts, usage
from virtplane.storage.hostpath.failures import Code, CsiFailure
from virtplane.storage.hostpath.pool import BLOCK, IMAGE, Pool, remove_folder

_log = logging.getLogger(__name__)


def recover(pools: Iterable[Pool], node: str) -> None:
    """Forget users from before the machine was restarted, and detach loop devices that nobody uses.

    Raises OSError.
    """
    for pool in pools:
        if not pool.is_there():
            continue  # its claim is mounted later
        for volume in pool.list_volumes():
            if volume.content.format == IMAGE:
                _recover_image(pool, volume.id, node, is_block=volume.content.mode == BLOCK)


def tidy(pools: Iterable[Pool]) -> None:
    """Remove what nobody works on any more, which takes as long as there is much of it, and detach what had
    its place there. Raises OSError.
    """
    remove_abandoned(pools)
    _detach_deleted()


def _recover_image(pool: Pool, identifier: str, node: str, *, is_block: bool) -> None:
    try:
        with locks.locked(pool.record_folder(identifier), f"volume {identifier}"):
            if usage.users(pool, identifier).get(node, usage.boot()) != usage.boot():
                usage.remove_user(pool, identifier, node)
            if is_block:
                usage.detach_unused(pool, identifier)
    except CsiFailure as failure:
        # Another node's driver removes it or works on it, and will leave it tidy.
        if failure.code not in (Code.NOT_FOUND, Code.ABORTED):
            raise


def remove_abandoned(pools: Iterable[Pool]) -> None:
    """Remove what nobody works on any more: a driver was killed, or removing it has failed.

    What cannot be removed now stays for the next time: other volumes do not wait for it.
    """
    for pool in pools:
        if pool.is_there():
            _remove_abandoned(pool.pending)
            if pool.snapshots is not None:
                _remove_abandoned(pool.snapshots)


def _remove_abandoned(parent: Path) -> None:
    """Remove workplaces whose maker has ended: the kernel has released their locks."""
    for folder in [entry for entry in parent.iterdir() if entry.name.startswith(".")]:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if locks.try_lock(descriptor):
                _log.info("removing %s, on which nobody works any more", folder)
                for point in mountinfo.mount_points_below(folder):
                    mounts.unmount(point)  # a file system that was being written out
                remove_folder(folder)
        except OSError as error:
            _log.error("%s is not removed, trying again when another volume is removed: %s", folder, error)
        finally:
            os.close(descriptor)


def _detach_deleted() -> None:
    """Detach loop devices of images that were removed; the kernel waits for whoever has them open."""
    for number, path in loop_devices.attached():
        if "/.virtplane/" in path and path.endswith(f"/disk{loop_devices.DELETED}"):
            loop_devices.detach(number)
