"""A component with a clock on its work queues: how long keys wait until a worker takes them.

    python -m bench.queued WAITS [options of `virtplane run`]

On SIGUSR1 the waits since the last one are written to WAITS, in seconds, by controller.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

from kubecore.runtime import controller
from kubecore.runtime.queue import WorkQueue
from kubecore.runtime.store import Key
from virtplane import run

_waits: defaultdict[str, list[float]] = defaultdict(list)


class _TimedQueue(WorkQueue[Key]):
    """Notes when each key becomes ready for a worker, and when it gets one."""

    def __init__(self, *, max_delay: float) -> None:
        super().__init__(max_delay=max_delay)
        self._ready: dict[Key, float] = {}

    def add(self, item: Key) -> None:
        super().add(item)
        if item not in self._processing:
            self._ready.setdefault(item, time.monotonic())

    def done(self, item: Key) -> None:
        if item in self._dirty:
            self._ready.setdefault(item, time.monotonic())
        super().done(item)

    async def get(self) -> Key:
        item = await super().get()
        task = asyncio.current_task()
        name = task.get_name().rpartition("-")[0] if task is not None else ""
        _waits[name].append(time.monotonic() - self._ready.pop(item))
        return item


def _dump(number: int, frame: FrameType | None) -> None:
    target = Path(sys.argv[1])
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(_waits))
    partial.replace(target)
    _waits.clear()


def main() -> int:
    """Command line."""
    setattr(controller, "WorkQueue", _TimedQueue)  # noqa: B010 - the name that controllers make queues by
    signal.signal(signal.SIGUSR1, _dump)
    return run.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
