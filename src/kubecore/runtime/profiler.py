"""What a process spends its processor time on, and where its tasks and threads stand."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
import traceback
from types import FrameType

from kubecore.runtime.profiles import Frame, Stack, cpu_profile

_INTERVAL_SECONDS = 0.01
_MOST_SECONDS = 600.0
"""A profiler that nobody stops ends by itself."""
_CLOCK_OF_THREAD = 6
"""CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED (clock_getcpuclockid(3), NOTES)."""
_MOST_STACKS = 5000
_MOST_FRAMES = 100
_MOST_TASKS = 1000


class Profiler:
    """Samples the stacks of all threads a hundred times a second, from `start` to `stop`.

    Each stack is charged with the processor time of its thread since the sample before, so that threads which
    wait cost nothing.
    """

    def __init__(self) -> None:
        self._spent: dict[Stack, tuple[int, int]] = {}
        self._begun = 0
        self._duration = 0
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether samples are taken."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin anew; what was sampled before is forgotten."""
        self.stop()
        self._spent, self._begun, self._duration = {}, time.time_ns(), 0
        self._end = threading.Event()
        native = (thread.native_id for thread in threading.enumerate())
        before = {number: _processor_nanoseconds(number) for number in native if number is not None}
        arguments = (self._spent, before, self._end)
        self._thread = threading.Thread(target=self._sample, args=arguments, name="profiler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples; what was sampled is kept."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()

    @property
    def has_ended(self) -> bool:
        """Whether there is a whole profile."""
        return bool(self._begun) and not self.is_running

    def profile(self) -> bytes:
        """What was sampled, for ``pprof``. May take a moment, and may be called in any thread."""
        period = int(_INTERVAL_SECONDS * 1e9)
        return cpu_profile(dict(self._spent), begun=self._begun, duration=self._duration, period=period)

    def standing(self) -> bytes:
        """Where the tasks and threads stand now, as text. Called in the event loop's thread."""
        return _standing().encode(errors="replace")

    def _sample(
        self, spent: dict[Stack, tuple[int, int]], before: dict[int, int], end: threading.Event
    ) -> None:
        begun, own = time.monotonic_ns(), threading.get_ident()
        while not end.wait(_INTERVAL_SECONDS) and self._duration < _MOST_SECONDS * 1e9:
            numbers = {thread.ident: thread.native_id for thread in threading.enumerate()}
            for thread, frame in sys._current_frames().items():
                number = numbers.get(thread)
                if thread == own or number is None:
                    continue
                used = _processor_nanoseconds(number)
                last = before.get(number, 0)
                before[number] = used
                if used > last:
                    _charge(spent, _stack(frame), used - last)
            self._duration = time.monotonic_ns() - begun


def _charge(spent: dict[Stack, tuple[int, int]], stack: Stack, nanoseconds: int) -> None:
    if stack not in spent and len(spent) >= _MOST_STACKS:
        stack = ()
    count, sum_before = spent.get(stack, (0, 0))
    spent[stack] = (count + 1, sum_before + nanoseconds)


def _processor_nanoseconds(thread: int) -> int:
    """The processor time of a thread by its number for the kernel; 0 for one that has ended.

    `time.pthread_getcpuclockid` would crash for such a thread, the kernel's clock of the number does not.
    """
    try:
        return time.clock_gettime_ns(~thread << 3 | _CLOCK_OF_THREAD)
    except OSError:
        return 0


def _stack(frame: FrameType | None) -> Stack:
    found: list[Frame] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        found.append(Frame(code.co_filename, code.co_qualname, code.co_firstlineno, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(found)


def _standing() -> str:
    """Where the tasks of the event loop and the threads stand."""
    out = io.StringIO()
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in tasks[:_MOST_TASKS]:
        out.write(f"task {task.get_name()}:\n")
        for frame in task.get_stack():
            out.writelines(traceback.format_stack(frame, limit=1))
        out.write("\n")
    if len(tasks) > _MOST_TASKS:
        out.write(f"and {len(tasks) - _MOST_TASKS} tasks more\n\n")
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for thread, frame in sys._current_frames().items():
        out.write(f"thread {names.get(thread, thread)}:\n")
        out.writelines(traceback.format_stack(frame))
        out.write("\n")
    return out.getvalue()
