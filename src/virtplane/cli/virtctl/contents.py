"""Local files, and parts of files, as they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, slots=True)
class Content:
    """`size` bytes of a file or block device from `offset`."""

    path: Path
    size: int
    offset: int = 0

    def read(self, begin: int, count: int) -> bytes:
        """Up to `count` bytes from `begin`, none of them beyond the content. Raises click.ClickException."""
        count = min(count, self.size - begin)
        if count <= 0:
            # `begin` may be any number that a file holds, which is no offset to seek.
            return b""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + begin)
                return file.read(count)
        except OSError as error:
            raise _unreadable("read", self.path, error) from error


def whole(path: Path) -> Content:
    """All of a file or block device. Raises click.ClickException where it cannot be read from any offset."""
    try:
        with path.open("rb") as file:
            return Content(path, file.seek(0, 2))
    except OSError as error:
        raise _unreadable("open", path, error) from error


def _unreadable(action: str, path: Path, error: OSError) -> click.ClickException:
    return click.ClickException(f"{action} {path}: {(error.strerror or str(error)).lower()}")
