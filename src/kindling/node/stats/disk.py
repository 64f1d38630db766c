"""How much disk directories use, and how much file systems have left."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kindling.node.programs import run_program

_log = logging.getLogger(__name__)

_SECONDS = 60.0
"""A pod may fill a volume with so many files that counting them takes for ever."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system's size, use, and what is left for users of it, in bytes and inodes."""

    capacity: int
    used: int
    available: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What a directory holds: bytes on disk, and inodes."""

    used: int = 0
    inodes: int = 0


def file_system(path: Path) -> FileSystem:
    """The file system that `path` is in. Raises OSError."""
    found = os.statvfs(path)
    return FileSystem(
        capacity=found.f_blocks * found.f_frsize,
        used=(found.f_blocks - found.f_bfree) * found.f_frsize,
        available=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
    )


async def measure(directories: Sequence[Path]) -> Mapping[Path, DiskUsage]:
    """The usage of each directory that can be read, without what is mounted in it.

    du(1) follows no links and copes with trees of any depth. Directories that it does not measure in time are
    left out.
    """
    if not directories:
        return {}
    used, inodes = await asyncio.gather(_du("--block-size=1", directories), _du("--inodes", directories))
    return {
        path: DiskUsage(used[path], inodes[path]) for path in directories if path in used and path in inodes
    }


async def _du(unit: str, directories: Sequence[Path]) -> dict[Path, int]:
    options = ("--summarize", "--one-file-system", "--null", unit, "--")
    try:
        # When files disappear meanwhile, du fails but still prints the rest.
        _, output, _ = await run_program("nice", "du", *options, *map(str, directories), seconds=_SECONDS)
    except OSError as error:
        _log.warning("the disk usage of %s is not known: %s", directories[0].parent, error)
        return {}
    rows = (entry.partition("\t") for entry in output.split("\0") if entry)
    return {Path(path): int(number) for number, _, path in rows if number.isdigit()}
