"""Running a program to its end beside an event loop.

A thread starts it and waits for it: uvloop starts programs by fork(2), which copies the page tables of a
process (15 ms of processor time with 100 MiB of memory), where `subprocess` uses vfork(2) (2 ms).
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: exit code (negative: the signal), output and error output."""

    code: int
    output: bytes
    problem: bytes


async def run(command: Sequence[str], given: bytes = b"") -> Ended:
    """Run a program with `given` as its standard input; it need not read it.

    When this task is cancelled, the program is killed, and gone before the cancellation goes on. Raises
    OSError when it cannot be started.
    """
    program = _Program(command, given)
    executor = ThreadPoolExecutor(1, thread_name_prefix="program")
    running = asyncio.get_running_loop().run_in_executor(executor, program.run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        program.kill()
        await asyncio.wait([running])
        raise
    finally:
        executor.shutdown(wait=False)


class _Program:
    """One run of a program; `run` is called in a thread, `kill` in any other."""

    def __init__(self, command: Sequence[str], given: bytes) -> None:
        self._command, self._given = command, given
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_unwanted = False

    def run(self) -> Ended:
        pipe = subprocess.PIPE
        with self._lock:
            if self._is_unwanted:
                return Ended(-1, b"", b"")
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe)
        with self._process as process:
            output, problem = process.communicate(self._given)
        return Ended(process.returncode, output, problem)

    def kill(self) -> None:
        with self._lock:
            self._is_unwanted = True
            if self._process is not None:
                self._process.kill()
