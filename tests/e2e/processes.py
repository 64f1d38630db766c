"""The processes of the machine that a cluster runs on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process of the machine; `traces` is all text by which it can be attributed."""

    pid: int
    command: str
    traces: str

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless the process ended by itself."""
        kill(self.pid, number)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, unless it ended by itself."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def all_processes() -> Iterator[Process]:
    """The processes of the machine, without those that are only waiting to be collected."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if command:
                texts = [
                    (entry / name).read_bytes().decode(errors="replace") for name in ("cgroup", "environ")
                ]
                yield Process(int(entry.name), command.replace("\0", " "), "\n".join([command, *texts]))
        except OSError:
            continue
