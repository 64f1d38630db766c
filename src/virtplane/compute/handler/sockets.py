"""Unix sockets below pods' folders: their paths are longer than the 108 bytes that an address may have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A short path of the socket `path`, valid inside the block: its folder is held open and named by number.

    Raises FileNotFoundError when the folder does not exist.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
