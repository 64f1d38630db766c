"""Copies of a directory volume's files.

A tenant may change the source meanwhile, so every step goes through descriptors and follows no link: what is
copied lies in the volume, whatever is swapped for whatever.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from virtplane.storage.hostpath import images

_DEEPEST = 512
"""Open descriptors of one copy, two for each level."""
_SECONDS = 600.0


@dataclass(slots=True)
class _Level:
    """A directory that is being copied."""

    source: int
    target: int
    names: list[str]
    status: os.stat_result


@dataclass(slots=True)
class _Copy:
    """One copy: where files with several names were put, by device and inode."""

    root: int
    links: dict[tuple[int, int], str] = field(default_factory=dict)


def copy(source: Path, target: Path) -> None:
    """Copy what is in `source` into the new directory `target`, sharing blocks where possible.

    Raises OSError, also for more than 512 levels.
    """
    target.mkdir(mode=0o777)
    levels = [_level(os.open(source, _READ_DIRECTORY), os.open(target, _READ_DIRECTORY))]
    made = _Copy(os.dup(levels[0].target))
    path: list[str] = []
    try:
        while levels:
            level = levels[-1]
            if not level.names:
                _finish(levels.pop())
                path = path[:-1]
                continue
            name = level.names.pop()
            below = _copy_entry(level, name, "/".join([*path, name]), made)
            if below is not None:
                levels.append(below)
                path.append(name)
                if len(levels) > _DEEPEST:
                    raise OSError(
                        errno.ELOOP, f"directories are nested more than {_DEEPEST} deep", str(source)
                    )
    finally:
        for level in levels:
            os.close(level.source)
            os.close(level.target)
        os.close(made.root)


def remove(path: Path) -> None:
    """Remove a tree of any depth; it is no error if it is gone. Raises OSError.

    coreutils' rm keeps to descriptors as well, and neither recurses nor crosses a mount.
    """
    done = subprocess.run(
        ["rm", "-rf", "--one-file-system", "--", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode != 0:
        raise OSError(errno.EIO, done.stderr.decode(errors="replace").strip()[:500])


_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SWAPPED = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""What opening says where an entry has become something else: as what it was, it is gone."""
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _level(source: int, target: int) -> _Level:
    return _Level(source, target, os.listdir(source), os.fstat(source))


def _finish(level: _Level) -> None:
    """Times last: entries have changed them."""
    _copy_attributes(level.source, level.target, level.status)
    os.close(level.source)
    os.close(level.target)


def _copy_entry(level: _Level, name: str, path: str, made: _Copy) -> _Level | None:
    """Copy one entry; gives the level below for a directory. What has vanished meanwhile is left out."""
    try:
        status = os.stat(name, dir_fd=level.source, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            source = os.open(name, _READ_DIRECTORY, dir_fd=level.source)
            os.mkdir(name, 0o700, dir_fd=level.target)
            return _level(source, os.open(name, _READ_DIRECTORY, dir_fd=level.target))
        if stat.S_ISREG(status.st_mode):
            _copy_file(level, name, path, made)
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(_link_target(level.source, name), name, dir_fd=level.target)
            os.chown(name, status.st_uid, status.st_gid, dir_fd=level.target, follow_symlinks=False)
        elif stat.S_ISFIFO(status.st_mode):
            os.mkfifo(name, stat.S_IMODE(status.st_mode), dir_fd=level.target)
            os.chown(name, status.st_uid, status.st_gid, dir_fd=level.target, follow_symlinks=False)
        # Sockets are of no use without their process, and devices do not belong on volumes.
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _SWAPPED:
            return None
        raise
    return None


def _link_target(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:  # no longer a link
            raise FileNotFoundError(errno.ENOENT, "the link has gone", name) from error
        raise


def _copy_file(level: _Level, name: str, path: str, made: _Copy) -> None:
    source = os.open(name, _READ, dir_fd=level.source)
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            return
        known = made.links.get((status.st_dev, status.st_ino)) if status.st_nlink > 1 else None
        if known is not None:
            os.link(known, name, src_dir_fd=made.root, dst_dir_fd=level.target, follow_symlinks=False)
            return
        target = os.open(name, _WRITE, 0o600, dir_fd=level.target)
        try:
            try:
                images.share_blocks(source, target)
            except images.CannotShare:
                images.copy_data(source, target)
            _copy_attributes(source, target, status)
        finally:
            os.close(target)
        if status.st_nlink > 1:
            made.links[status.st_dev, status.st_ino] = path
    finally:
        os.close(source)


def _copy_attributes(source: int, target: int, status: os.stat_result) -> None:
    os.fchown(target, status.st_uid, status.st_gid)
    for attribute in os.listxattr(source):
        with suppress(OSError):  # such as SELinux's, which the target's policy may refuse
            os.setxattr(target, attribute, os.getxattr(source, attribute))
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
