"""subPath mounts: a path inside a volume, opened without following links out of the volume."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from kindling.node import files
from kindling.node.pods import identity
from kindling.node.volumes import mounts
from kindling.node.volumes.content import ContentProblem
from kubecore import openat2

_RESOLVE = openat2.BENEATH | openat2.NO_MAGIC_LINKS
_PATH = os.O_PATH | os.O_CLOEXEC


def prepare(uid: str, volume: str, container: str, index: int, base: Path, relative: str) -> Path:
    """Bind ``base/relative`` to a directory of the pod and return that. Missing parts are made.

    Raises ContentProblem when the path would leave the volume.
    """
    descriptor = open_inside(base, relative)
    try:
        target = identity.pod_directory(uid) / "volume-subpaths" / volume / container / str(index)
        mounts.unmount(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            target.mkdir(exist_ok=True)
        else:
            target.touch(exist_ok=True)
        mounts.bind(str(files.through(descriptor)), target)
    finally:
        os.close(descriptor)
    return target


def open_inside(base: Path, relative: str) -> int:
    """Open ``base/relative``; missing directories are created with the permissions of the volume's root.

    Containers may change the volume at the same time. The kernel follows its links and never leaves the
    volume, because each step is resolved relative to its root (``openat2``). Raises ContentProblem, OSError.
    """
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if relative.startswith("/") or ".." in parts:
        raise ContentProblem(f"subPath {relative!r} must stay inside the volume")
    root = os.open(base, _PATH)
    try:
        try:
            return openat2.open_below(root, "/".join(parts) or ".", _PATH, _RESOLVE)
        except FileNotFoundError:
            return _make(root, parts)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise ContentProblem(f"subPath {relative!r} leaves the volume") from error
        raise ContentProblem(f"subPath {relative!r}: {error.strerror}") from error
    finally:
        os.close(root)


def _make(root: int, parts: list[str]) -> int:
    """Create the missing directories of `parts`; returns a descriptor of the last one. Raises OSError."""
    mode = os.fstat(root).st_mode & 0o7777
    current = os.dup(root)
    for depth, name in enumerate(parts, start=1):
        try:
            following = _open_or_make(root, "/".join(parts[:depth]), current, name, mode)
        finally:
            os.close(current)
        current = following
    return current


def _open_or_make(root: int, path: str, parent: int, name: str, mode: int) -> int:
    """Open the directory `path`; create it in `parent` if it does not exist. Returns its descriptor."""
    try:
        return openat2.open_below(root, path, _PATH | os.O_DIRECTORY, _RESOLVE)
    except FileNotFoundError:
        # A dangling symbolic link cannot be opened and makes the creation fail, so it is refused.
        os.mkdir(name, 0o700, dir_fd=parent)
    made = openat2.open_below(parent, name, os.O_RDONLY | os.O_DIRECTORY, openat2.NO_LINKS)
    try:
        os.fchmod(made, mode)
        return openat2.open_below(made, ".", _PATH, openat2.NO_LINKS)
    finally:
        os.close(made)
