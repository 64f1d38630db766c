"""Files below directories that pods write to: read within bounds, removed without leaving the directory.

The agent is root and a pod may leave anything in its volumes: links, mounts, files of any size, directories
nested without end, and it may change them while the agent reads them. The kernel resolves names here
(``openat2``), so that nothing can change between a check and the use of the file.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from kubecore import mountinfo
from kubecore.openat2 import NO_LINKS, NO_MOUNTS, open_below

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BATCH = 1000

Check = Callable[[], None]
"""Called between two steps of long work; raises to end it."""


def through(descriptor: int) -> Path:
    """A path that leads to exactly the open file, also when it was opened with O_PATH."""
    return Path(f"/proc/self/fd/{descriptor}")


def read_end(path: Path, limit: int) -> bytes:
    """The last `limit` bytes of a regular file. Raises OSError for a symbolic link or a pipe, and never
    blocks on one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - limit))
        return stream.read(limit)


def remove_tree(directory: Path, check: Check = lambda: None) -> None:
    """Remove `directory` and everything in it; a missing directory is no error.

    Links are removed, not followed. With something mounted inside, nothing is removed (OSError, EBUSY); a
    mount that appears meanwhile ends the removal (EBUSY or EXDEV). Uses two descriptors at any depth:
    subdirectories of nested directories are first moved up into `directory`.
    """
    inside = [point for point in mountinfo.mount_points_below(directory) if point != directory]
    if inside:
        raise OSError(errno.EBUSY, "something is mounted here", str(inside[0]))
    try:
        root = os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        while entries := _some_entries(root):
            for entry in entries:
                check()
                if not _remove_entry(root, entry):
                    _hand_up(root, entry.name, check)
                    os.rmdir(entry.name, dir_fd=root)
    finally:
        os.close(root)
    directory.rmdir()


def _some_entries(directory: int) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as found:
        return list(islice(found, _BATCH))


def _remove_entry(directory: int, entry: os.DirEntry[str]) -> bool:
    """Remove one entry; False when it is a directory that is not empty."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.name, dir_fd=directory)
        return True
    try:
        os.rmdir(entry.name, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _hand_up(root: int, name: str, check: Check) -> None:
    """Move the subdirectories of the directory `name` up into `root`, until it has none."""
    directory = open_below(root, name, _DIRECTORY, NO_MOUNTS | NO_LINKS)
    try:
        while entries := _some_entries(directory):
            for entry in entries:
                check()
                if not _remove_entry(directory, entry):
                    new = f".removed-{secrets.token_hex(8)}"
                    os.rename(entry.name, new, src_dir_fd=directory, dst_dir_fd=root)
    finally:
        os.close(directory)
