"""Mounting, through libc."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kubecore.mountinfo import is_mount_point

MS_RDONLY = 1
_MS_NODEV = 4
_MS_REMOUNT = 32
_MS_BIND = 4096
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8

_FLAGS = {
    "ro": MS_RDONLY,
    "nosuid": 2,
    "nodev": _MS_NODEV,
    "noexec": 8,
    "noatime": 1 << 10,
    "nodiratime": 1 << 11,
    "relatime": 1 << 21,
    "strictatime": 1 << 24,
}
"""Options that belong to a mount and not to its file system."""
_NEUTRAL = frozenset({"rw", "suid", "dev", "exec", "atime", "diratime", "defaults", "bind", "rbind"})

_libc = ctypes.CDLL(None, use_errno=True)


class UnknownOption(Exception):
    """A mount option that is none of a mount itself."""


def split_options(options: Iterable[str]) -> tuple[int, list[str]]:
    """The flags of a mount, and the options that its file system has to know."""
    flags, others = 0, []
    for option in ",".join(options).split(","):
        if option in _FLAGS:
            flags |= _FLAGS[option]
        elif option and option not in _NEUTRAL:
            others.append(option)
    return flags, others


def mount_device(device: Path, target: Path, kind: str, options: Sequence[str]) -> None:
    """Mount the file system of a device. Device nodes in it are no devices. Raises OSError."""
    flags, others = split_options(options)
    _mount(str(device), target, kind, flags | _MS_NODEV, ",".join(others))


def mount_overlay(lower: Path, upper: Path, work: Path, *, target: Path) -> None:
    """Mount an overlay. Raises OSError: EBUSY while another one has these layers, in whichever namespace."""
    layers = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    options = [f"{name}={_escaped(path)}" for name, path in layers.items()]
    _mount("overlay", target, "overlay", _MS_NODEV, ",".join([*options, "index=on"]))


def bind(source: Path, target: Path, options: Sequence[str] = (), *, read_only: bool = False) -> None:
    """A bind mount, with options of a mount. Where one is, it gets the options: they are set in a second
    step, before which whoever mounted it may have been killed.

    Raises OSError, UnknownOption before anything is mounted.
    """
    flags, others = split_options(options)
    if others:
        raise UnknownOption(", ".join(others))
    flags |= MS_RDONLY if read_only else 0
    was_mounted = is_mounted(target)
    if not was_mounted:
        _mount(str(source), target, "", _MS_BIND, "")
    if flags:
        try:
            _mount("none", target, "", _MS_BIND | _MS_REMOUNT | flags | _kept_flags(target), "")
        except OSError:
            if not was_mounted:
                unmount(target)
            raise


def unmount(target: Path) -> None:
    """Unmount all that is mounted at `target`; it is no error if nothing is. Raises OSError."""
    while is_mounted(target):
        if _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"unmounting {target}: {os.strerror(number)}")


def is_mounted(target: Path) -> bool:
    """Whether something is mounted exactly at `target`, bind mounts included."""
    return is_mount_point(target)


def sync_file_system(path: Path) -> None:
    """Write out what the file system at `path` has in memory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"syncing {path}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def _kept_flags(target: Path) -> int:
    """What a remount must name again, or it would be lost."""
    flags = os.statvfs(target).f_flag
    return flags & (os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)


def _escaped(path: Path) -> str:
    """As an overlay's options have it."""
    return re.sub(r"([\\,:])", r"\\\1", str(path))


def _mount(source: str, target: Path, kind: str, flags: int, data: str) -> None:
    done = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data.encode() or None
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {source} on {target}: {os.strerror(number)}")
