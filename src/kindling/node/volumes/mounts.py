"""Mounting, through libc: no program to start for each mount."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from kubecore.mountinfo import is_mount_point

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError."""
    done = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data.encode() or None
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {source} on {target}: {os.strerror(number)}")


def bind(source: str, target: Path, *, read_only: bool = False) -> None:
    """A recursive bind mount. Raises OSError."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: Path) -> None:
    """Detach all mounts at `target`, the topmost first; it is no error if there is none."""
    while _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass


def is_mounted(target: Path) -> bool:
    """Whether something is mounted exactly at `target`.

    Unlike `Path.is_mount` this also sees bind mounts of the same file system; not seeing one and mounting
    again would double the mounts of all peers each time.
    """
    return is_mount_point(target)


def make_private(target: Path) -> None:
    """Stop mount propagation at `target` in both directions. Raises OSError."""
    mount("none", target, flags=MS_PRIVATE)
