"""What the node itself uses: processors, memory, processes, and the interfaces of a network namespace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_IGNORED_LINKS = ("lo", "veth")
"""Beginnings of the names of interfaces that are not counted, as by a kubelet."""
_NO_DEFAULT = "eth0"


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """Usage of the whole machine. Memory is in bytes."""

    cpu_nanoseconds: int
    memory_capacity: int
    memory_used: int
    working_set: int
    rss: int
    page_faults: int
    major_page_faults: int
    processes: int
    max_processes: int
    boot_seconds: int

    @property
    def memory_available(self) -> int:
        """What a kubelet calls memory.available: all memory without the working set."""
        return max(0, self.memory_capacity - self.working_set)


@dataclass(frozen=True, slots=True)
class Interface:
    """Counters of one network interface."""

    name: str
    rx_bytes: int
    rx_errors: int
    tx_bytes: int
    tx_errors: int


def machine_usage(proc: Path = Path("/proc")) -> MachineUsage:
    """The usage of the machine, from proc(5). Raises OSError."""
    memory = {
        name: int(value.split()[0]) * 1024
        for name, _, value in (line.partition(":") for line in (proc / "meminfo").read_text().splitlines())
    }
    events = _rows(proc / "vmstat")
    times = _rows(proc / "stat")
    ticks = [int(field) for field in times["cpu"]]
    # Fields 3 and 4 are idle and iowait; guest time (8, 9) is part of user time already.
    busy = sum(ticks[:8]) - ticks[3] - ticks[4]
    used = memory["MemTotal"] - memory["MemFree"]
    return MachineUsage(
        cpu_nanoseconds=busy * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),
        memory_capacity=memory["MemTotal"],
        memory_used=used,
        working_set=max(0, used - memory["Inactive(file)"]),
        rss=memory["AnonPages"],
        page_faults=int(events["pgfault"][0]),
        major_page_faults=int(events["pgmajfault"][0]),
        processes=int((proc / "loadavg").read_text().split()[3].partition("/")[2]),
        max_processes=min(
            int((proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max")
        ),
        boot_seconds=int(times["btime"][0]),
    )


def interfaces(pid: int | str = "self", proc: Path = Path("/proc")) -> list[Interface]:
    """The interfaces of a process's network namespace; none when the process is gone.

    Whoever may change a pod's links can give them names that are no text.
    """
    try:
        lines = (proc / str(pid) / "net/dev").read_text(errors="replace").split("\n")[2:]
    except OSError:
        return []
    found = []
    for line in lines:
        name, _, counters = line.partition(":")
        fields = counters.split()
        if len(fields) >= 11 and not name.strip().startswith(_IGNORED_LINKS):
            numbers = (int(fields[index]) for index in (0, 2, 8, 10))
            found.append(Interface(name.strip(), *numbers))
    return found


def default_interface(proc: Path = Path("/proc")) -> str:
    """The interface of the default route; ``eth0`` without one."""
    try:
        routes = [line.split() for line in (proc / "self/net/route").read_text().splitlines()[1:]]
    except OSError:
        return _NO_DEFAULT
    return next((route[0] for route in routes if route[1] == "00000000"), _NO_DEFAULT)


def _rows(path: Path) -> Mapping[str, Sequence[str]]:
    return {row[0]: row[1:] for row in (line.split() for line in path.read_text().splitlines()) if row}
