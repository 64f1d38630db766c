"""Memory of processes by proportional set size: pages that several processes share are split among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)\s*(.*)")
_PSS = re.compile(r"^Pss:\s+(\d+)", re.MULTILINE)
_RSS = re.compile(r"^Rss:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """A process and its memory in KiB."""

    pid: int
    command: str
    pss: int
    rss: int

    @property
    def label(self) -> str:
        """What a table calls it."""
        words = self.command.split()
        name = Path(words[0]).name if words else "?"
        if "python" in name and len(words) > 2:
            rest = words[2:] if words[1] == "-m" else [Path(words[1]).name, *words[2:]]
            return " ".join([rest[0], *(word for word in rest[1:4] if not word.startswith("-"))][:3])
        return name


def process(pid: int) -> Process | None:
    """The process, or None when it is gone."""
    folder = Path("/proc") / str(pid)
    try:
        rollup = (folder / "smaps_rollup").read_text()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    pss, rss = _PSS.search(rollup), _RSS.search(rollup)
    return Process(pid, command, int(pss[1]), int(rss[1])) if pss and rss else None


def parents() -> dict[int, int]:
    """The parent of every process."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            found[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def descendants(root: int) -> list[Process]:
    """`root` and all below it."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        found.append(pid)
    return [known for pid in sorted(found) if (known := process(pid)) is not None]


def pod_processes(uid: str) -> list[Process]:
    """All processes of the pod, and the shim that holds it."""
    spellings = (uid, uid.replace("-", "_"))
    inside = set()
    for entry in Path("/proc").iterdir():
        try:
            cgroup = (entry / "cgroup").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if any(spelling in cgroup for spelling in spellings):
            inside.add(int(entry.name))
    above = parents()
    shims = {above[pid] for pid in inside if pid in above} - inside
    known = [process(pid) for pid in sorted(inside | shims)]
    return [each for each in known if each and (each.pid in inside or "shim" in each.command)]


def guest_and_translations(pid: int, guest_bytes: int) -> tuple[int, int]:
    """KiB of a QEMU's guest RAM, and of the code that its emulator has translated (nothing with KVM).

    Guest RAM is the one mapping of its size; translations live in the only writable and executable mapping.
    """
    guest = translated = 0
    kind = ""
    for line in (Path("/proc") / str(pid) / "smaps").read_text().splitlines():
        header = _MAPPING.match(line)
        if header:
            size = int(header[2], 16) - int(header[1], 16)
            kind = "translated" if header[3].startswith("rwx") else ""
            if size == guest_bytes and header[3].startswith("rw-"):
                kind = "guest"
        elif line.startswith("Pss:"):
            if kind == "guest":
                guest += int(line.split()[1])
            elif kind == "translated":
                translated += int(line.split()[1])
    return guest, translated
