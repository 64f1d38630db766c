"""The files of a journal: who may use them, how they are made, and what outlives a power cut."""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .journal import StorageError

PRIVATE = 0o600
"""Mode of every file here: they hold secrets."""


def beside(path: Path, suffix: str) -> Path:
    """The companion of a database file, named as SQLite does: ``apiserver.db-wal``."""
    return path.with_name(path.name + suffix)


def sync_directory(directory: Path) -> None:
    """Make changed names in `directory` (new, renamed, removed ones) survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of `path` outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(temporary: Path, path: Path) -> None:
    """Rename a finished file to its final name, durably."""
    sync_file(temporary)
    temporary.replace(path)
    sync_directory(path.parent)


def write_durably(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replace `path` atomically and durably."""
    temporary = path.with_name(f".{path.name}.new")
    with open_private(temporary, mode) as stream:
        stream.write(content)
    publish(temporary, path)


@contextlib.contextmanager
def removed_on_failure(temporary: Path) -> Iterator[Path]:
    """A new, empty, private file that is removed if the block fails."""
    open_private(temporary).close()
    try:
        yield temporary
    except BaseException:
        for suffix in ("", "-journal", "-wal", "-shm"):
            beside(temporary, suffix).unlink(missing_ok=True)
        raise


def open_private(path: Path, mode: int = PRIVATE) -> BinaryIO:
    """Create an empty file that only its owner may read; an existing one is replaced."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(descriptor, mode)  # the umask does not decide
    return os.fdopen(descriptor, "wb")


class Guard:
    """Makes one process the database's only writer, and remembers which revision was acknowledged last.

    The number is written without waiting for the disk: it may be too small after a power cut, never too
    large. A database that holds less has lost something, which SQLite itself does not notice: to it, a
    damaged write-ahead log looks like one that ends early, and an empty file like a new one.
    """

    def __init__(self, path: Path) -> None:
        self.path = beside(path, "-guard")
        self._database = path
        self._descriptor = -1

    def acquire(self) -> int:
        """Become the only user; the revision noted last, 0 for none. Raises StorageError, OSError."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StorageError(f"{self._database} is in use by another API server") from error
        self._descriptor = descriptor
        return parse_mark(os.pread(descriptor, 64, 0))

    def note(self, revision: int) -> None:
        """Remember that `revision` is durable."""
        os.pwrite(self._descriptor, render_mark(revision), 0)

    def sync(self) -> None:
        """Make the note survive a power failure."""
        os.fsync(self._descriptor)

    def release(self) -> None:
        """Let others use the database."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def noted_revision(path: Path) -> int:
    """The newest revision that was noted for the database, by any process; 0 if none."""
    try:
        return parse_mark(beside(path, "-guard").read_bytes())
    except FileNotFoundError:
        return 0


def render_mark(revision: int) -> bytes:
    """A line of fixed length, checked, so that half of a new one over an old one is no number."""
    digits = b"%020d" % revision
    return b"%b %08x\n" % (digits, zlib.crc32(digits))


def parse_mark(line: bytes) -> int:
    """The revision of a line of render_mark; 0 for anything else."""
    digits = line[:20]
    return int(digits) if digits.isdigit() and line == render_mark(int(digits)) else 0
