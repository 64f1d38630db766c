"""hostPath volumes: a path of the node, verified or created as the volume's type says."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from kindling.node.volumes.content import ContentProblem

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def check(path: Path, kind: str) -> None:
    """Verify or create `path` for a hostPath volume of type `kind`. Raises ContentProblem."""
    if not kind:
        return
    test, description = _CHECKS[kind]
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(parents=True, mode=0o755)
    if kind == "FileOrCreate" and not path.exists():
        if not path.parent.is_dir():
            raise ContentProblem(f"hostPath type check failed: {path} is not a file")
        path.touch(mode=0o644)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ContentProblem(f"hostPath type check failed: {path} is not {description}") from error
    if not test(mode):
        raise ContentProblem(f"hostPath type check failed: {path} is not {description}")
