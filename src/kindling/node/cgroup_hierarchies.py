"""Where the kernel's cgroups are mounted: one hierarchy with version 2, one for each controller with 1."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def is_unified(root: Path = ROOT) -> bool:
    """Whether there are cgroups of version 2 only."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The root of every hierarchy."""
    if is_unified(root):
        return [root]
    return [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
