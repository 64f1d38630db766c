"""Removing the cgroups of pods, which CRI leaves to the kubelet."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from kindling.node.cgroup_hierarchies import hierarchies

_QUALITIES = ("", "burstable", "besteffort")
_POD = "pod"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_pod_cgroups(root: str, uid: str) -> None:
    """Remove the cgroups of an ended pod below `root` (a path inside the hierarchies)."""
    for hierarchy in hierarchies():
        base = hierarchy / root.lstrip("/") / "kubepods"
        for quality in _QUALITIES:
            remove_tree(base / quality / f"pod{uid}")


def pods_with_cgroups(root: str) -> set[str]:
    """The uids of the pods that have cgroups below `root`.

    The agent makes them before the sandbox: one that ended in between, or whose runtime did, leaves no other
    trace of a pod that the API has deleted meanwhile.
    """
    found: set[str] = set()
    for hierarchy in hierarchies():
        base = hierarchy / root.lstrip("/") / "kubepods"
        for quality in _QUALITIES:
            with contextlib.suppress(FileNotFoundError):
                found |= {each.name.removeprefix(_POD) for each in (base / quality).glob(f"{_POD}*-*")}
    return found


@dataclass(slots=True)
class _Level:
    """One level of the descent: the directory, and its subdirectories that are still to be removed."""

    name: str
    identity: tuple[int, int]
    children: list[str]


def remove_tree(directory: Path) -> None:
    """Remove a cgroup and its descendants, except those that still have processes.

    A pod may have created cgroups to any depth: one descriptor moves down and up the tree, and no paths are
    built, which could become too long. Each cgroup is visited once, so that a process which keeps creating
    more cannot prolong the removal.
    """
    try:
        current = os.open(directory, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        levels = [_enter(current, "")]
        while levels[-1].children or len(levels) > 1:
            level = levels[-1]
            try:
                current = _move(current, level.children[-1] if level.children else "..")
            except OSError:
                if not level.children:
                    return  # this directory was removed in the meantime
                level.children.pop()  # it was removed, or replaced by a symbolic link
                continue
            if level.children:
                levels.append(_enter(current, level.children.pop()))
                continue
            levels.pop()
            if _identity(current) != levels[-1].identity:
                return  # it was moved in the meantime
            with contextlib.suppress(OSError):  # in use
                os.rmdir(level.name, dir_fd=current)
    finally:
        os.close(current)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _enter(directory: int, name: str) -> _Level:
    """Remove subdirectories that have none of their own; return the others, which are still to be visited."""
    children = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                try:
                    os.rmdir(entry.name, dir_fd=directory)
                except OSError:
                    children.append(entry.name)
    return _Level(name, _identity(directory), children)


def _move(directory: int, name: str) -> int:
    """Replace the descriptor by that of its entry `name`. Raises OSError, and then keeps the old
    descriptor.
    """
    other = os.open(name, _DIRECTORY, dir_fd=directory)
    os.close(directory)
    return other


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino
