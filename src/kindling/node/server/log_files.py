"""The files below the node's ``/var/log``, as a kubelet offers them to those who may read nodes' logs.

Pods may write there, so no link is followed and nothing but regular files is read.
"""

from __future__ import annotations

import asyncio
import html
import os
import stat
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kubecore import openat2

ROOT = Path("/var/log")
_RESOLVE = openat2.BENEATH | openat2.NO_LINKS | openat2.NO_MAGIC_LINKS
_BLOCK = 256 * 1024
_MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """An open file of `size` bytes, or the page of a directory, whose `descriptor` is -1."""

    descriptor: int
    size: int
    page: bytes = b""

    async def pieces(self) -> AsyncIterator[bytes]:
        """What the file held when it was opened."""
        left = self.size
        while left > 0 and (piece := await asyncio.to_thread(os.read, self.descriptor, min(left, _BLOCK))):
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


def find(path: str, root: Path = ROOT) -> Found | None:
    """What is at a path below `root`, to be closed; None if it is neither a regular file nor a directory."""
    try:
        below = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # O_NONBLOCK: a pipe of a pod would keep the node waiting.
        descriptor = openat2.open_below(below, path or ".", os.O_RDONLY | os.O_NONBLOCK, _RESOLVE)
    except (OSError, ValueError):
        return None
    finally:
        os.close(below)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return Found(descriptor, status.st_size)
    try:
        page = _listing(descriptor) if stat.S_ISDIR(status.st_mode) else None
    finally:
        os.close(descriptor)
    return None if page is None else Found(-1, len(page), page)


def _listing(directory: int) -> bytes:
    """The page of a directory, as Go's file server writes it."""
    lines = []
    with os.scandir(directory) as entries:
        found = [(item.name, item.is_dir(follow_symlinks=False)) for item in islice(entries, _MOST_NAMES)]
    for name, is_directory in sorted(found):
        shown = f"{name}/" if is_directory else name
        target = urllib.parse.quote(os.fsencode(shown))
        text = html.escape(os.fsencode(shown).decode(errors="replace"))
        lines.append(f'<a href="{target}">{text}</a>\n')
    return f"<pre>\n{''.join(lines)}</pre>\n".encode()
