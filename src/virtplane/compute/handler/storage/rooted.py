"""Paths inside another file system's root.

The kernel follows a container's absolute links from virt-handler's own root; here they lead where the
container would go (``/var/run -> /run`` in most images), and never out of it.
"""

from __future__ import annotations

from pathlib import Path

_MAX_LINKS = 40


class TooManyLinks(OSError):
    """A path inside the root never ends."""


def resolve_inside(root: Path, path: str) -> Path:
    """Where `path` leads for a process whose root is `root`; parts that do not exist are kept as they are.

    Raises TooManyLinks.
    """
    waiting = [part for part in reversed(path.split("/")) if part]
    found = root
    links = 0
    while waiting:
        part = waiting.pop()
        if part == ".":
            continue
        if part == "..":
            found = found.parent if found != root else root
            continue
        step = found / part
        if not step.is_symlink():
            found = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise TooManyLinks(f"{path}: too many links")
        target = str(step.readlink())
        if target.startswith("/"):
            found = root
        waiting += [piece for piece in reversed(target.split("/")) if piece]
    return found
