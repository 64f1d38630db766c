"""The API server with a sampler in it: where its CPU time goes, by phase of a request.

    python -m bench.profiled PROFILE [flags of the API server]

At every tick of the process's CPU time the stack of the event loop's thread is looked at, and the innermost
function that ``bench.phases`` knows decides to which phase the tick counts. On SIGUSR1 the counts since the
last one are written to PROFILE. The other threads (the journal's) are told apart by the kernel's account.
"""

from __future__ import annotations

import dis
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from bench.phases import LOOP, SOURCES
from kindling.apiserver import main as server
from kindling.apiserver.storage.store import Store

_TICK_SECONDS = 0.001
"""The kernel may round it up to its own tick (4 ms)."""

_RESUME, _BEGIN = dis.opmap["RESUME"], 0


@dataclass(slots=True)
class _Sampler:
    target: Path
    ticks: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    """Seconds from handing a write to the store until it is durable."""
    _phases: dict[str, str | None] = field(default_factory=dict)
    _main: float = 0.0
    _others: float = 0.0

    def tick(self, number: int, frame: FrameType | None) -> None:
        """A signal handler: count the interrupted phase."""
        if frame is not None and frame.f_code.co_code[frame.f_lasti] == _RESUME:
            # Signals wait for the next instruction. A function that has not begun, or has just been woken by
            # the loop, is not what took the time, but whoever called it is.
            frame = frame.f_back if frame.f_code.co_code[frame.f_lasti + 1] == _BEGIN else None
        while frame is not None:
            phase = self._phase(frame.f_code.co_filename)
            if phase is not None:
                self.ticks[phase] += 1
                return
            frame = frame.f_back
        self.ticks[LOOP] += 1

    def _phase(self, path: str) -> str | None:
        if path not in self._phases:
            self._phases[path] = next((phase for part, phase in SOURCES if part in path), None)
        return self._phases[path]

    def dump(self, number: int, frame: FrameType | None) -> None:
        """A signal handler: write what was counted and begin anew."""
        main, others = _cpu_seconds()
        document = {
            "ticks": dict(self.ticks),
            "main_seconds": main - self._main,
            "other_seconds": others - self._others,
            "waits": sorted(self.waits),
        }
        self._main, self._others = main, others
        self.ticks.clear()
        self.waits.clear()
        partial = self.target.with_suffix(".partial")
        partial.write_text(json.dumps(document))
        partial.replace(self.target)


def _cpu_seconds() -> tuple[float, float]:
    """CPU time of the main thread, and of all others."""
    main = time.clock_gettime(time.pthread_getcpuclockid(threading.main_thread().ident or 0))
    return main, time.process_time() - main


def _timed(write: Callable[..., Awaitable[Any]], waits: list[float]) -> Callable[..., Awaitable[Any]]:
    async def timed(*arguments: Any, **named: Any) -> Any:
        begun = time.monotonic()
        written = await write(*arguments, **named)
        waits.append(time.monotonic() - begun)
        return written

    return timed


def main() -> int:
    """Command line."""
    sampler = _Sampler(Path(sys.argv[1]))
    for name in ("put", "delete"):
        setattr(Store, name, _timed(getattr(Store, name), sampler.waits))
    signal.signal(signal.SIGPROF, sampler.tick)
    signal.signal(signal.SIGUSR1, sampler.dump)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, _TICK_SECONDS, _TICK_SECONDS)
    return server.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
