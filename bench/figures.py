"""Tables of figures with their targets."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (0 to 1) of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def say(text: str = "") -> None:
    """One line of output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def machine() -> str:
    """Date, processor, number of cores, kernel and load."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    date = time.strftime("%Y-%m-%d %H:%M")
    return f"{date}, {os.cpu_count()} x {model}, Linux {platform.release()}, load {load}"


def row(name: str, value: str, *, beside: str = "", target: str = "", met: bool | None = None) -> None:
    """One figure; `beside` is what it is compared with."""
    verdict = {None: "", True: "met", False: "MISSED"}[met]
    say(f"{name:<44}{value:>18}{beside:>18}{target:>14}  {verdict}".rstrip())


def heading(*columns: str) -> None:
    """The head of a table."""
    name, value, beside, target = (*columns, "", "", "")[:4]
    say()
    say(f"{name:<44}{value:>18}{beside:>18}{target:>14}")
