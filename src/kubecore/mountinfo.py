"""Where something is mounted, as this process sees it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def mount_points(table: bytes | None = None) -> list[Path]:
    """All mount points in the order in which they were mounted.

    `table` is the content of a ``/proc/PID/mountinfo``, by default of this process's. Raises OSError.
    """
    return [Path(os.fsdecode(name)) for name in _names(_own() if table is None else table)]


def rows(table: bytes) -> list[bytes]:
    """The lines of a ``mountinfo``.

    Newlines alone end them: names that pods give to directories may have every other line break, which
    ``splitlines`` and files that are read as text take for the end of a line.
    """
    return table.rstrip(b"\n").split(b"\n") if table else []


def mount_points_below(directory: Path, table: bytes | None = None) -> list[Path]:
    """The mount points at or below `directory`, deepest first. Raises OSError.

    Paths are made of these alone: a node with fifty guests has thousands of mounts.
    """
    above = os.fsencode(directory).rstrip(b"/")
    found = [
        Path(os.fsdecode(name))
        for name in _names(_own() if table is None else table)
        if name.startswith(above) and name[len(above) : len(above) + 1] in (b"", b"/")
    ]
    return sorted(found, key=lambda point: len(point.parts), reverse=True)


def is_mount_point(path: Path) -> bool:
    """Whether something is mounted at exactly `path`, which no link leads through. Raises OSError."""
    return os.fsencode(path) in _names(_own())


def _own() -> bytes:
    return Path("/proc/self/mountinfo").read_bytes()


def _names(table: bytes) -> Iterator[bytes]:
    """The fifth fields (proc_pid_mountinfo(5)), where blanks and backslashes are octal numbers."""
    for line in rows(table):
        name = line.split(b" ", 5)[4]
        yield _OCTAL.sub(_character, name) if b"\\" in name else name


def _character(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
