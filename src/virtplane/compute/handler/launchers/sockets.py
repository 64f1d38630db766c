"""Unix sockets below pods' folders: their paths are longer than the 108 bytes that an address may have."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virtplane.compute.handler.rooted import Root


@contextmanager
def reachable(path: Path, below: Path | None = None, *, links: bool = True) -> Iterator[str]:
    """A short address of the socket `path`, valid inside the block: it is held open and named by number.

    `below` is the folder that the pod may write to, where that is not the socket's own: links on the way
    from there that lead out of it are not followed, for they could lead to another guest's socket. Without
    `links`, none is. Raises FileNotFoundError when there is no socket, and OSError.
    """
    folder = below or path.parent
    with (
        Root(folder, beneath=True, links=links) as root,
        root.opened(str(path.relative_to(folder)), os.O_PATH) as descriptor,
    ):
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(errno.ENOENT, "there is no socket", str(path))
        yield f"/proc/self/fd/{descriptor}"
