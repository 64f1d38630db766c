"""Waiting for what a cluster does, and the consoles of its guests."""

from __future__ import annotations

import http.client
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from tests.e2e.commands import program
from tests.e2e.failures import ApiError, NotInTime, NotThere
from tests.support.starvation import starvation_measured

if TYPE_CHECKING:
    from tests.e2e.clusters import Machine

_Found = TypeVar("_Found")

PASSWORD = "virtplane"
_POLL_SECONDS = 0.1
_SLOWEST_POLL_SECONDS = 0.5
_PATIENT_AFTER_SECONDS = 10.0
"""When polls are as slow as they become: each costs what is waited for processor time."""


def wait_for(what: str, look: Callable[[], _Found | None], seconds: float) -> _Found:
    """Call `look` until it gives something true, for `seconds` of a machine that is not busy otherwise.

    Failures of the API, and what is not there, count as "not yet". Raises NotInTime.
    """
    begun = time.monotonic()
    last: object = None
    with starvation_measured() as starvation:
        while True:
            try:
                found = look()
            except (OSError, http.client.HTTPException, ApiError, NotThere) as error:
                found, last = None, error
            if found:
                return found
            waited, limit = time.monotonic() - begun, seconds * starvation.factor
            if waited > limit:
                raise NotInTime(f"{what}: not within {limit:.1f} s" + (f" (last: {last!r})" if last else ""))
            patience = min(1.0, waited / _PATIENT_AFTER_SECONDS) * _SLOWEST_POLL_SECONDS
            time.sleep(max(_POLL_SECONDS, min(patience, limit - waited)))


def wait_for_none(what: str, look: Callable[[], Sequence[object]], seconds: float) -> None:
    """Wait until `look` finds nothing; else say what it found."""
    try:
        wait_for(what, lambda: not look(), seconds)
    except NotInTime as error:
        raise NotInTime(f"{error}: {look()}") from error


class Console:
    """``virtctl console`` in a terminal of its own."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.seen = ""
        self._count = 0

    def send(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    def expect(self, pattern: str, seconds: float) -> re.Match[str]:
        """Wait for output that matches; what stands up to its end is consumed.

        `seconds` hold on a machine that is not busy otherwise, as in `wait_for`. Raises NotInTime.
        """
        match = re.search(pattern, self.seen)
        if match is None:
            begun = time.monotonic()
            with starvation_measured() as starvation:
                while (match := re.search(pattern, self.seen)) is None:
                    limit = seconds * starvation.factor
                    if time.monotonic() - begun > limit:
                        raise NotInTime(
                            f"console: no {pattern!r} in {limit:.1f} s, but {self.seen[-2000:]!r}"
                        )
                    self._read(repr(pattern))
        self.seen = self.seen[match.end() :]
        return match

    def watch(self, seconds: float) -> str:
        """What was not consumed yet after so many seconds of looking on."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read("the end of looking on")
        return self.seen

    def _read(self, awaited: str) -> None:
        """Add what comes within a moment to what was seen."""
        ready, _, _ = select.select([self._descriptor], [], [], _POLL_SECONDS)
        if not ready:
            return
        try:
            self.seen += os.read(self._descriptor, 65536).decode(errors="replace")
        except OSError as error:
            raise NotInTime(f"console ended before {awaited}: {self.seen[-2000:]!r}") from error

    def _try_to_log_in(self) -> bool:
        """Whether there is a shell now."""
        self.send("\n")
        try:
            found = self.expect(r"login: |~ # |Password: ", 3)
        except NotInTime:
            return False
        if found[0] == "login: ":
            self.send("root\n")
            self.expect("Password: ", 20)
            self.send(f"{PASSWORD}\n")
            self.expect("~ # ", 20)
        return found[0] != "Password: "

    def log_in(self, seconds: float = 60) -> None:
        """Log in as root, or find the shell that an earlier console left open.

        `seconds` hold on a machine that is not busy otherwise, as in `wait_for`.
        """
        begun = time.monotonic()
        with starvation_measured() as starvation:
            while not self._try_to_log_in():
                is_late = time.monotonic() - begun > seconds * starvation.factor
                if is_late or self.process.poll() is not None:
                    raise NotInTime(f"console: no prompt in {seconds} s, but {self.seen[-2000:]!r}")
        self.run("stty -echo cols 300; dmesg -n 1")

    def run(self, command: str, seconds: float = 20) -> str:
        """Type a command and return what it prints."""
        self._count += 1
        mark = f"end-{self._count}-{os.getpid()}"
        # The quotes keep an echo of the command line from looking like its end.
        self.send(f"{command}; echo \"{mark}\"''=\n")
        output = self.expect(rf"(?s)(.*?){mark}=\r?\n?", seconds)[1]
        self.expect("~ # ", seconds)
        return output.replace("\r", "").strip()

    def leave(self) -> int:
        """Press the escape key; the exit code of virtctl."""
        self.send("\x1d")
        return self.process.wait(10)


@contextmanager
def open_console(machine: Machine) -> Iterator[Console]:
    """``virtctl console NAME`` in a pseudo-terminal."""
    ours, theirs = pty.openpty()
    command = [str(program("virtctl")), "console", machine.name]
    environment = machine.cluster.environment
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield Console(ours, process)
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)
