"""Cgroups of pods: their limit of processes, and taking them away, as the runtime does not."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """The root of every cgroup hierarchy (one with version 2)."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink()]


def limit_processes(path: str, most: int) -> None:
    """Let at most `most` processes and threads run in the cgroup at `path` and below it.

    The cgroup must be there. Raises OSError, also where the kernel counts no processes.
    """
    root = next((each for each in hierarchies() if each.name == "pids"), None) or _ROOT
    (root / path.lstrip("/") / "pids.max").write_text(str(most))


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
