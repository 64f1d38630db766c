"""What the node's kernel tells about the node."""

from __future__ import annotations

import os
import time
from pathlib import Path

from virtplane.compute.handler.downwardmetrics.report import Metric

_PROC, _SYSTEM = Path("/proc"), Path("/sys")
_KIB = 1024


def read(proc: Path = _PROC, system: Path = _SYSTEM) -> list[Metric]:
    """Processors, memory, paging and the time. Raises OSError, and ValueError for what is no number."""
    return [*_processors(proc, system), *_memory(proc), Metric("Time", int(time.time()), "s")]


def _processors(proc: Path, system: Path) -> list[Metric]:
    packages = {
        path.read_text().strip()
        for path in system.glob("devices/system/cpu/cpu[0-9]*/topology/physical_package_id")
    }
    first, *ticks = (proc / "stat").read_text().split("\n", 1)[0].split()
    if first != "cpu":
        raise ValueError(f"{proc}/stat does not begin with the processors' times")
    user, nice, system_time = (int(text) for text in ticks[:3])
    seconds = (user + nice + system_time) / os.sysconf("SC_CLK_TCK")
    return [Metric("NumberOfPhysicalCPUs", len(packages)), Metric("TotalCPUTime", seconds, "s")]


def _memory(proc: Path) -> list[Metric]:
    found = _numbers(proc / "meminfo")
    total, free = found["MemTotal"], found["MemFree"]
    used = total - free - found["Buffers"] - found["Cached"]
    swap = found["SwapTotal"] - found.get("SwapCached", 0)
    paging = _numbers(proc / "vmstat")
    page = os.sysconf("SC_PAGE_SIZE")
    return [
        Metric("FreePhysicalMemory", free, "KiB"),
        Metric("FreeVirtualMemory", free + found["SwapFree"], "KiB"),
        Metric("MemoryAllocatedToVirtualServers", used, "KiB"),
        Metric("UsedVirtualMemory", used + swap, "KiB"),
        Metric("PagedInMemory", paging.get("pswpin", 0) * page // _KIB, "KiB"),
        Metric("PagedOutMemory", paging.get("pswpout", 0) * page // _KIB, "KiB"),
    ]


def _numbers(path: Path) -> dict[str, int]:
    """The lines ``Name: 12 kB`` or ``name 12`` of a file."""
    words = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {parts[0]: int(parts[1]) for parts in words if len(parts) > 1}
