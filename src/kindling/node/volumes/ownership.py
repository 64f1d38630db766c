"""fsGroup: the pod's group owns a volume and may write to it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from kindling.node import files
from kindling.node.threads import in_thread
from kubecore import openat2
from kubecore.json import JsonObject, get_object, get_str

_DIRECTORY_BITS = 0o2770
_FILE_BITS = 0o660
_RESOLVE = openat2.NO_MOUNTS | openat2.NO_LINKS | openat2.BENEATH
_OPEN_LEVELS = 32
"""Directories within each other that are open at once, each with two descriptors."""
_MOST_WAITING = 20_000
"""Directories below those that are remembered by their paths, of up to 4096 characters."""
_PASSED_OVER = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
"""Taken away or replaced by a link meanwhile, or the root of another mount: not the volume's."""


def fs_group(pod: JsonObject) -> int | None:
    """spec.securityContext.fsGroup."""
    group = get_object(pod, "spec", "securityContext").get("fsGroup")
    return group if isinstance(group, int) else None


async def apply(pod: JsonObject, directory: Path) -> None:
    """Change the group of `directory` to the pod's fsGroup, if it has one, as fsGroupChangePolicy says.

    This may take long: a volume may hold millions of files, and other pods may change it at the same time.
    Raises OSError.
    """
    group = fs_group(pod)
    if group is None:
        return
    policy = get_str(pod, "spec", "securityContext", "fsGroupChangePolicy", default="Always")

    def work(check: files.Check) -> None:
        # Here as well, for the server of a volume may not answer.
        status = directory.lstat()
        right = status.st_gid == group and status.st_mode & _DIRECTORY_BITS == _DIRECTORY_BITS
        if policy != "OnRootMismatch" or not right:
            hand_over(directory, group, check)

    await in_thread("fsgroup", work)


def hand_over(directory: Path, group: int, check: files.Check = lambda: None) -> None:
    """Change the group of everything in `directory` to `group`. The directory itself comes last: once it has
    the group, everything in it has.

    Follows no symbolic links and enters no mounts. Raises OSError, also for names too long to resolve.
    """
    levels = [_Level(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))]
    try:
        while levels:
            level = levels[-1]
            entry = next(level.entries, None)
            if entry is None:
                if len(levels) == 1:
                    _give(level.directory, group)
                levels.pop().close()
                continue
            check()
            if _hand_over_entry(level.directory, entry.name, group):
                below = _open_below(level.directory, entry.name)
                if below is not None and len(levels) < _OPEN_LEVELS:
                    levels.append(below)
                elif below is not None:
                    with contextlib.closing(below):
                        _hand_over_deep(below.directory, group, check)
    finally:
        for level in levels:
            level.close()


class _Level:
    """An open directory that is being handed over, which owns the descriptor `directory`.

    Its entries are read as they are needed, as there may be any number.
    """

    def __init__(self, directory: int) -> None:
        self.directory = directory
        try:
            self.entries = os.scandir(directory)
        except OSError:
            os.close(directory)
            raise

    def close(self) -> None:
        """Close it."""
        self.entries.close()
        os.close(self.directory)


def _open_below(parent: int, name: str) -> _Level | None:
    """The directory `name`; None where it is none of the volume's any more. Raises OSError."""
    try:
        return _Level(openat2.open_below(parent, name, os.O_RDONLY | os.O_DIRECTORY, _RESOLVE))
    except OSError as error:
        if error.errno in _PASSED_OVER:
            return None
        raise


def _hand_over_deep(root: int, group: int, check: files.Check) -> None:
    """Change the group of everything in a directory below so many others that no more are kept open.

    Raises OSError, also where more directories than `_MOST_WAITING` are to be remembered.
    """
    waiting = ["."]
    while waiting:
        waiting += _hand_over_entries(root, waiting.pop(), group, check)
        if len(waiting) > _MOST_WAITING:
            raise OSError(errno.E2BIG, f"more than {_MOST_WAITING} directories, {_OPEN_LEVELS} levels deep")


def _hand_over_entries(root: int, path: str, group: int, check: files.Check) -> list[str]:
    """Change the group of the entries of one directory; returns the entries that are directories."""
    try:
        opened = openat2.open_below(root, path, os.O_RDONLY | os.O_DIRECTORY, _RESOLVE)
    except OSError as error:
        if error.errno in _PASSED_OVER:
            return []
        raise
    directories = []
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                check()
                if _hand_over_entry(opened, entry.name, group):
                    directories.append(f"{path}/{entry.name}")
                    if len(directories) > _MOST_WAITING:
                        return directories
    finally:
        os.close(opened)
    return directories


def _hand_over_entry(parent: int, name: str, group: int) -> bool:
    """Change the group of one entry; returns whether it is a directory."""
    try:
        entry = openat2.open_below(parent, name, os.O_PATH | os.O_NOFOLLOW, openat2.NO_MOUNTS)
    except OSError as error:
        if error.errno in _PASSED_OVER:
            return False
        raise
    try:
        return _give(entry, group)
    finally:
        os.close(entry)


def _give(descriptor: int, group: int) -> bool:
    """Change the group of an open file or link; returns whether it is a directory."""
    status = os.fstat(descriptor)
    if stat.S_ISLNK(status.st_mode):
        # The group of a symbolic link has no effect, and there is no safe path to change it by.
        return False
    is_directory = stat.S_ISDIR(status.st_mode)
    bits = _DIRECTORY_BITS if is_directory else _FILE_BITS
    if status.st_gid != group:
        os.chown(files.through(descriptor), -1, group)
    if status.st_mode & bits != bits:
        files.through(descriptor).chmod((os.fstat(descriptor).st_mode & 0o7777) | bits)
    return is_directory
