"""Where something is mounted, as this process sees it."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


def mount_points(table: bytes | None = None) -> list[Path]:
    """All mount points in the order in which they were mounted.

    `table` is the content of a ``/proc/PID/mountinfo``, by default of this process's. Raises OSError.
    """
    if table is None:
        table = Path("/proc/self/mountinfo").read_bytes()
    return [_point(line) for line in rows(table)]


def rows(table: bytes) -> list[bytes]:
    """The lines of a ``mountinfo``.

    Newlines alone end them: names that pods give to directories may have every other line break, which
    ``splitlines`` and files that are read as text take for the end of a line.
    """
    return table.rstrip(b"\n").split(b"\n") if table else []


def mount_points_below(directory: Path) -> list[Path]:
    """The mount points at or below `directory`, deepest first. Raises OSError."""
    found = [point for point in mount_points() if point.is_relative_to(directory)]
    return sorted(found, key=lambda point: len(point.parts), reverse=True)


def _point(line: bytes) -> Path:
    """The fifth field (proc_pid_mountinfo(5)), where blanks and backslashes are octal numbers."""
    raw = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ", 5)[4])
    return Path(os.fsdecode(raw))
