"""Orphaned shims: containerd started them and was killed before it had recorded them.

containerd 1.6 never cleans them up. A shim can safely be killed when no sandbox and no container belongs to
it and it has no child process.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)

SHIM = "containerd-shim-runc-v2"
GRACE_SECONDS = 60.0
"""How long a shim may run before the runtime lists what it was started for."""


@dataclass(frozen=True)
class Shim:
    """A shim of the runtime in this process's mount namespace; `id` is its sandbox's or container's."""

    pid: int
    id: str
    age_seconds: float


class LostShims:
    """Kills the orphaned shims of the runtime whose socket is at `address`."""

    def __init__(self, address: str, program: str = SHIM, grace_seconds: float = GRACE_SECONDS) -> None:
        self._address = address
        self._program = program
        self._grace_seconds = grace_seconds

    def find(self) -> list[Shim]:
        """The shims that are so old that containerd must have recorded them."""
        return [
            shim
            for pid in _pids()
            if (shim := self._read(pid)) is not None and shim.age_seconds >= self._grace_seconds
        ]

    def end(self, shims: Collection[Shim], known: Collection[str]) -> list[Shim]:
        """Kill each of `shims` whose id is not in `known` and that has no child process; returns the killed
        ones.

        `known` must have been listed after `shims`.
        """
        unknown = [shim for shim in shims if shim.id not in known]
        parents = {_parent(pid) for pid in _pids()} if unknown else set()
        return [shim for shim in unknown if shim.pid not in parents and self._kill(shim)]

    def _kill(self, shim: Shim) -> bool:
        try:
            handle = os.pidfd_open(shim.pid)
        except ProcessLookupError:
            return False
        try:
            now = self._read(shim.pid)
            if now is None or now.id != shim.id:
                return False  # the process ID was reused by another process
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        _log.info(
            "killed the orphaned shim %s (process %d): containerd has no sandbox or container for it",
            shim.id,
            shim.pid,
        )
        return True

    def _read(self, pid: int) -> Shim | None:
        """The process, if it is a shim that serves a sandbox or container of this runtime."""
        folder = Path(f"/proc/{pid}")
        try:
            if (folder / "exe").readlink().name != self._program:
                return None
            here = (folder / "ns/mnt").stat().st_ino == Path("/proc/self/ns/mnt").stat().st_ino
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return None  # it ended
        options = dict(itertools.pairwise(words))
        if not here or options.get("-address") != self._address:
            return None
        return Shim(pid, options["-id"], age) if "-id" in options else None


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int:
    """The parent's number; 0 of a process that ended."""
    with contextlib.suppress(OSError):
        return int(_stat(pid)[1])
    return 0


def _stat(pid: int) -> list[str]:
    """The fields of proc_pid_stat(5) after the process name, which may contain any character.
    Raises OSError.
    """
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
