"""Images: sparse files that hold a volume's file system, or the disk that a Block volume is.

A file system is made once, in a file that nobody has had yet, and grown by the kernel when it is mounted. The
driver never looks for one on a Block volume: what a tenant writes there is never mounted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from pathlib import Path

MIB = 1 << 20
XFS = "xfs"
EXT4 = "ext4"
FILE_SYSTEMS = (XFS, EXT4)

DEVICE_SECTOR = 512
FILE_SYSTEM_SECTOR = 4096
"""Guests' disks are made for the one; with the other, images that share blocks need no second cache."""
_MINIMUM = {XFS: 256 * MIB, EXT4: 16 * MIB}
"""Below these the tools refuse, or little would be left for files."""
_LOG = 80 * MIB
_IN_PROGRESS = 126
"""Where an XFS superblock says that mkfs has not finished."""
_FICLONE = 0x40049409
_CHUNK = 64 * MIB
_SECONDS = 120.0

_MAKE = {
    XFS: ("mkfs.xfs", "-q", "-K", "-m", "reflink=1", "-s", "size=4096"),
    EXT4: (
        "mkfs.ext4",
        "-q",
        "-F",
        "-m",
        "0",
        "-b",
        "4096",
        "-E",
        "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
    ),
}
_OPTIONS = {XFS: ("nouuid", "discard"), EXT4: ("discard",)}


class ProgramFailed(Exception):
    """A program for file systems failed; the message says which and why."""


class CannotShare(Exception):
    """The file system of the pool cannot share blocks between files (reflink)."""


def least_size(kind: str) -> int:
    """The least size in bytes of a volume with this file system."""
    return _MINIMUM[kind]


def file_size(size: int, *, has_file_system: bool) -> int:
    """The length of the image of a volume of `size` bytes.

    A file system needs some of it for itself: its log, and about a thirtieth for its trees.
    """
    if not has_file_system:
        return size
    return size + size // 32 + _LOG


def mount_options(kind: str) -> tuple[str, ...]:
    """The driver's own options: copies of an XFS have the same UUID, and freed blocks return to the pool."""
    return _OPTIONS[kind]


def make(path: Path, length: int, kind: str | None) -> None:
    """Make the image `path` with a file system, or empty; it is on the disk afterwards.

    Raises OSError, ProgramFailed.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, length)
        if kind is not None:
            _run(*_MAKE[kind], str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_on_device(device: Path, *, again: bool = False) -> None:
    """Make an XFS on a device that holds nothing; `again`: or one that is half made.

    Raises ProgramFailed, also if something else is on it.
    """
    _run("mkfs.xfs", "-q", "-m", "reflink=1", *(["-f"] if again else []), str(device))


def is_half_made(device: Path) -> bool:
    """Whether mkfs.xfs was killed before it had made the XFS on a device. Raises OSError."""
    with device.open("rb") as file:
        head = file.read(_IN_PROGRESS + 1)
    return len(head) > _IN_PROGRESS and head.startswith(b"XFSB") and head[_IN_PROGRESS] != 0


def clone(source: Path, target: Path) -> None:
    """Make `target` share all blocks of `source`, as it is at one moment. Raises OSError, CannotShare."""
    with source.open("rb") as origin:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                share_blocks(origin.fileno(), descriptor)
            finally:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def share_blocks(source: int, target: int) -> None:
    """FICLONE between open files. Raises OSError, CannotShare."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY):
            raise CannotShare(os.strerror(error.errno or 0)) from error
        raise


def copy(source: Path, target: Path) -> None:
    """Copy the parts of an image that have data. It must not change meanwhile. Raises OSError."""
    with source.open("rb") as origin:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            copy_data(origin.fileno(), descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def copy_data(source: int, target: int) -> None:
    """Copy between open files, keeping holes. Raises OSError."""
    length = os.fstat(source).st_size
    os.ftruncate(target, length)
    position = 0
    while position < length:
        try:
            start = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(source, start, os.SEEK_HOLE)
        os.lseek(target, start, os.SEEK_SET)
        while start < position:
            done = os.sendfile(target, source, start, min(_CHUNK, position - start))
            if done == 0:
                return
            start += done


def resize(path: Path, length: int) -> None:
    """Make an image longer, on the disk; a longer one stays as it is. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size < length:
            os.ftruncate(descriptor, length)
        os.fsync(descriptor)  # also what a call did that was killed
    finally:
        os.close(descriptor)


def grow_file_system(kind: str, device: Path, mounted: Path) -> None:
    """Grow a mounted file system to the size of its device. Raises ProgramFailed."""
    if kind == XFS:
        _run("xfs_growfs", "-d", str(mounted))
    else:
        _run("resize2fs", str(device))


def _run(*command: str) -> None:
    """Run a program. Raises ProgramFailed; OSError where the pool is full."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise ProgramFailed(f"the program {command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ProgramFailed(f"{command[0]} took longer than {_SECONDS:g} s") from error
    if done.returncode != 0:
        problem = f"{command[0]}: {done.stderr.decode(errors='replace').strip()[:500]}"
        if os.strerror(errno.ENOSPC) in problem:
            raise OSError(errno.ENOSPC, problem)
        raise ProgramFailed(problem)
