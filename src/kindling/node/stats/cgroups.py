"""What the kernel counts for a cgroup: processor time, memory, processes; with cgroups of version 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kindling.node.cgroup_hierarchies import ROOT, is_unified

_UNLIMITED = 1 << 60
"""Limits of memory above this many bytes are none: version 1 shows a huge number."""


@dataclass(frozen=True, slots=True)
class CgroupUsage:
    """Usage of one cgroup and those below it. Memory is in bytes."""

    cpu_nanoseconds: int
    memory: int
    working_set: int
    rss: int
    page_faults: int
    major_page_faults: int
    memory_limit: int | None


@dataclass(frozen=True, slots=True)
class CgroupReader:
    """Reads below `root`, where the hierarchies are mounted."""

    root: Path = ROOT

    def directory(self, controller: str, cgroup: str) -> Path:
        """The directory of a cgroup in the hierarchy of `controller`."""
        base = self.root if is_unified(self.root) else self.root / controller
        return base / cgroup.lstrip("/")

    def usage(self, cgroup: str) -> CgroupUsage | None:
        """The usage of a cgroup; None where there is none (any more)."""
        try:
            return self._unified(cgroup) if is_unified(self.root) else self._separate(cgroup)
        except (OSError, KeyError, ValueError):
            return None

    def processes(self, cgroup: str) -> int:
        """How many processes run in a cgroup itself; 0 where there is none."""
        return len(self.pids(cgroup))

    def pids(self, cgroup: str) -> list[int]:
        """The processes in a cgroup itself."""
        try:
            text = (self.directory("pids", cgroup) / "cgroup.procs").read_text()
        except OSError:
            return []
        return [int(line) for line in text.split()]

    def _unified(self, cgroup: str) -> CgroupUsage:
        directory = self.directory("", cgroup)
        memory, stat = _number(directory / "memory.current"), _table(directory / "memory.stat")
        limit = (directory / "memory.max").read_text().strip()
        return CgroupUsage(
            cpu_nanoseconds=_table(directory / "cpu.stat")["usage_usec"] * 1000,
            memory=memory,
            working_set=max(0, memory - stat["inactive_file"]),
            rss=stat["anon"],
            page_faults=stat["pgfault"],
            major_page_faults=stat["pgmajfault"],
            memory_limit=None if limit == "max" else int(limit),
        )

    def _separate(self, cgroup: str) -> CgroupUsage:
        directory = self.directory("memory", cgroup)
        memory, stat = _number(directory / "memory.usage_in_bytes"), _table(directory / "memory.stat")
        limit = _number(directory / "memory.limit_in_bytes")
        return CgroupUsage(
            cpu_nanoseconds=_number(self.directory("cpuacct", cgroup) / "cpuacct.usage"),
            memory=memory,
            working_set=max(0, memory - stat["total_inactive_file"]),
            rss=stat["total_rss"],
            page_faults=stat["total_pgfault"],
            major_page_faults=stat["total_pgmajfault"],
            memory_limit=None if limit >= _UNLIMITED else limit,
        )


def _number(path: Path) -> int:
    return int(path.read_text())


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}
