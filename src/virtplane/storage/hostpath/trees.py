"""Copies of a directory volume's files.

A tenant may change the source meanwhile, so every step goes through descriptors and follows no link: what is
copied lies in the volume, whatever is swapped for whatever.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from virtplane.storage.hostpath import images

_DEEPEST = 512
"""Levels of one copy, each with three open descriptors."""
_MOST_ENTRIES = 10_000_000
"""Entries of one copy: a tenant who adds some all the time would have it go on for ever."""
_MOST_LINKED = 1_000_000
"""Files with several names of one copy, which it remembers."""
_SECONDS = 600.0


@dataclass(slots=True)
class _Level:
    """A directory that is being copied."""

    source: int
    target: int
    entries: Iterator[os.DirEntry[str]]
    """Those not copied yet; they are read as they are needed, as there may be any number."""
    status: os.stat_result
    opened: ExitStack


@dataclass(slots=True)
class _Copy:
    """One copy: how much it is, and where files with several names were put, by device and inode."""

    root: int
    entries: int = 0
    links: dict[tuple[int, int], str] = field(default_factory=dict)


def copy(source: Path, target: Path) -> None:
    """Copy what is in `source` into the new directory `target`, sharing blocks where possible.

    Raises OSError, also for more than 512 levels, 10 million entries, a million files with several names.
    """
    levels = [_level(source, target)]
    made = _Copy(levels[0].target)
    path: list[str] = []
    try:
        while True:
            level = levels[-1]
            entry = next(level.entries, None)
            if entry is None:
                # Times last: entries have changed them.
                _copy_attributes(level.source, level.target, level.status)
                if len(levels) == 1:
                    return
                levels.pop().opened.close()
                path.pop()
                continue
            made.entries += 1
            if made.entries > _MOST_ENTRIES:
                raise OSError(errno.E2BIG, f"more than {_MOST_ENTRIES} files", str(source))
            below = _copy_entry(level, entry.name, "/".join([*path, entry.name]), made)
            if below is not None:
                levels.append(below)
                path.append(entry.name)
                if len(levels) > _DEEPEST:
                    raise OSError(
                        errno.ELOOP, f"directories are nested more than {_DEEPEST} deep", str(source)
                    )
    finally:
        for level in levels:
            level.opened.close()


def remove(path: Path) -> None:
    """Remove a tree of any depth; it is no error if it is gone. Raises OSError.

    coreutils' rm keeps to descriptors as well, and neither recurses nor crosses a mount.
    """
    try:
        done = subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, f"not removed within {_SECONDS:g} s", str(path)) from error
    if done.returncode != 0:
        raise OSError(errno.EIO, done.stderr.decode(errors="replace").strip()[:500])


_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SWAPPED = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
"""What opening says where an entry has become something else: as what it was, it is gone."""
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _level(
    source: str | Path, target: str | Path, source_in: int | None = None, target_in: int | None = None
) -> _Level:
    """Open a directory, and make the one that it is copied to. Raises OSError."""
    with ExitStack() as opened:
        from_here = os.open(source, _READ_DIRECTORY, dir_fd=source_in)
        opened.callback(os.close, from_here)
        os.mkdir(target, 0o700, dir_fd=target_in)
        to_here = os.open(target, _READ_DIRECTORY, dir_fd=target_in)
        opened.callback(os.close, to_here)
        entries = opened.enter_context(os.scandir(from_here))
        return _Level(from_here, to_here, entries, os.fstat(from_here), opened.pop_all())


def _copy_entry(level: _Level, name: str, path: str, made: _Copy) -> _Level | None:
    """Copy one entry; gives the level below for a directory. What has vanished meanwhile is left out."""
    try:
        status = os.stat(name, dir_fd=level.source, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return _level(name, name, level.source, level.target)
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
            if len(made.links) >= _MOST_LINKED:
                raise OSError(errno.E2BIG, f"more than {_MOST_LINKED} files with several names", name)
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
