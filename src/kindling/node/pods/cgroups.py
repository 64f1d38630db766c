"""Cgroups that pods leave behind: the runtime removes its containers' own, not the pod's."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """The root of every cgroup hierarchy (one with version 2)."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink()]


def remove_pod_cgroups(root: str, uid: str) -> None:
    """Remove the cgroups of an ended pod below `root` (a path inside the hierarchies)."""
    for hierarchy in hierarchies():
        base = hierarchy / root.lstrip("/") / "kubepods"
        for quality in ("", "burstable", "besteffort"):
            remove_tree(base / quality / f"pod{uid}")


def remove_tree(directory: Path) -> None:
    """Remove a cgroup and those below it, as far as no process is left in them."""
    if not directory.is_dir():
        return
    for child in directory.iterdir():
        if child.is_dir():
            remove_tree(child)
    try:
        directory.rmdir()
    except OSError:
        return
