"""What this process is called in listings of processes."""

from __future__ import annotations

import contextlib
from pathlib import Path

_NAME = Path("/proc/self/comm")


def name_process(name: str) -> None:
    """Call this process `name`, as `ps`, `top` and `pgrep` show it; the kernel keeps 15 bytes of it.

    Programs in Python are called after their interpreter or their one common command, so that nobody could
    tell them apart. Where the system does not allow it the process keeps its name: nothing depends on it.
    """
    with contextlib.suppress(OSError):
        _NAME.write_text(name)
