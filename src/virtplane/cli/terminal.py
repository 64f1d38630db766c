"""Output, errors and exit codes of all commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_UNUSABLE = 2
EXIT_NOT_PERMITTED = 3
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A command has failed: `what` failed, `why`, and what the user can `do`."""

    def __init__(self, what: str, why: str = "", do: str = "", *, code: int = EXIT_FAILED) -> None:
        super().__init__(what)
        self.what, self.why, self.do, self.code = what, why, do, code

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.do) if line)


def say(text: str) -> None:
    """Print progress to standard error, so that standard output can be piped."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print the name of a step, and its duration at its end."""
    sys.stderr.write(f"{text} ... ")
    sys.stderr.flush()
    started = time.monotonic()
    try:
        yield
    except BaseException:
        sys.stderr.write("failed\n")
        raise
    sys.stderr.write(f"{time.monotonic() - started:.1f} s\n")


def require_root(command: str) -> None:
    """Raise CommandError unless run as root, which pods, networks and mounts need."""
    if os.geteuid() != 0:
        raise CommandError(
            f"virtplane {command} needs root.",
            "It runs pods: network namespaces, mounts and cgroups belong to root.",
            f"Run it as root, or: sudo ./virtplane {command}",
            code=EXIT_NOT_PERMITTED,
        )


def report(error: CommandError) -> int:
    """Print an error and return its exit code."""
    sys.stderr.write(f"\nError: {error}\n")
    return error.code
