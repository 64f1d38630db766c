"""Container logs in CRI's format (``TIME stream F|P text``): reading, following, rotation."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 64 * 1024
_MAX_LINE = 1024 * 1024
"""Runtimes break lines after 16 KiB: more than this is no line, and not waited for."""
_POLL_SECONDS = 0.25
_ENDED_POLLS = 2


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a log to return. `since` is an RFC 3339 time with which lines' times are compared as
    text.
    """

    follow: bool = False
    tail_lines: int | None = None
    since: str = ""
    timestamps: bool = False
    limit_bytes: int | None = None
    stream: str = "All"


def render_line(line: bytes, options: LogOptions) -> bytes | None:
    """The bytes that a client gets for one raw line; None when the options filter it out."""
    parts = line.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 4:
        return line if len(parts) < 3 else None
    time, stream, tag, text = parts
    if options.since and _comparable(time.decode("latin-1")) < _comparable(options.since):
        return None
    if options.stream != "All" and stream.decode("latin-1") != options.stream.lower():
        return None
    end = b"" if tag == b"P" else b"\n"
    return time + b" " + text + end if options.timestamps else text + end


def _comparable(time: str) -> str:
    """A UTC time as text that sorts: fractions of any length with equal digits."""
    whole, dot, fraction = time.rstrip("Z").partition(".")
    return f"{whole}.{fraction if dot else '':0<9}"


async def tail_offset(path: Path, lines: int) -> int:
    """Where the last `lines` full lines of a file begin.

    Other tasks run meanwhile: a container can write gigabytes before its log is rotated.
    """
    with path.open("rb") as stream:
        position = stream.seek(0, 2)
        if lines == 0:
            return position
        found = 0
        while position > 0:
            size = min(_BLOCK, position)
            position -= size
            stream.seek(position)
            block = stream.read(size)
            # Count only complete lines (F); a partial line (P) belongs to the line after it.
            here = block.count(b"\n")
            if found + here > lines:
                end = len(block)
                for _ in range(max(lines - found, 0) + 1):
                    end = block.rfind(b"\n", 0, end)
                return position + end + 1
            found += here
            await asyncio.sleep(0)
        return 0


async def read_log(path: Path, options: LogOptions, is_running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Pieces of a log. With `follow`, it ends soon after the container has ended, and continues in the new
    file after a rotation.
    """
    left = options.limit_bytes
    async for line in _lines(path, options, is_running):
        rendered = render_line(line, options)
        if rendered is None:
            continue
        if left is not None:
            rendered = rendered[:left]
            left -= len(rendered)
        yield rendered
        if left is not None and left <= 0:
            return


async def _lines(path: Path, options: LogOptions, is_running: Callable[[], bool]) -> AsyncIterator[bytes]:
    stream = path.open("rb")
    try:
        if options.tail_lines is not None:
            stream.seek(await tail_offset(path, options.tail_lines))
        pending = b""
        quiet = 0
        while True:
            data = stream.read(_BLOCK)
            if data:
                quiet = 0
                *complete, pending = (pending + data).split(b"\n")
                for line in complete:
                    yield line + b"\n"
                if len(pending) > _MAX_LINE:
                    yield pending
                    pending = b""
                # Let other tasks run: a long log of which every line is filtered out would block the event
                # loop.
                await asyncio.sleep(0)
                continue
            if not options.follow:
                return
            if path.exists() and path.stat().st_ino != _inode(stream.fileno()):
                stream.close()
                stream = path.open("rb")
                continue
            quiet = 0 if is_running() else quiet + 1
            if quiet >= _ENDED_POLLS:
                return
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        stream.close()


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def rotate(path: Path, max_bytes: int, max_files: int) -> bool:
    """Rename a log that has grown too large (``N.log`` -> ``N.log.1`` ...); returns whether it did.

    The caller must then let the runtime reopen the log file.
    """
    if not path.exists() or path.stat().st_size < max_bytes:
        return False
    for index in range(max_files - 1, 0, -1):
        older = path.with_name(f"{path.name}.{index}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{index + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))
    path.with_name(f"{path.name}.{max_files}").unlink(missing_ok=True)
    return True


def remove(path: Path) -> None:
    """Remove a log with what `rotate` has made of it; none is no error. Raises OSError."""
    for each in [path, *path.parent.glob(f"{glob.escape(path.name)}.*")]:
        each.unlink(missing_ok=True)
