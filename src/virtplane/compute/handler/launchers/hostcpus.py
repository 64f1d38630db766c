"""The CPUs that a launcher's pod has for itself, and their places on this node."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from virtplane.compute.domain import pci
from virtplane.compute.domain.context import HostCpu
from virtplane.compute.handler.launchers.process import Process

_SYSTEM = Path("/sys/devices/system")
_PCI = Path("/sys/bus/pci/devices")
_NODE = re.compile(r"node([0-9]{1,4})", re.ASCII)


def of_pod(launcher: Process, system: Path = _SYSTEM) -> tuple[HostCpu, ...]:
    """The CPUs that the launcher may run on. Raises OSError when it has ended.

    A launcher can name fewer than its pod has, which is its own loss; the kernel lets it use no others.
    """
    numbers = os.sched_getaffinity(launcher.pid)
    if not launcher.is_alive:
        # Otherwise the number could be another process's by now.
        raise ProcessLookupError(f"process {launcher.pid} has ended")
    return places(numbers, system)


def places(numbers: Iterable[int], system: Path = _SYSTEM) -> tuple[HostCpu, ...]:
    """The CPUs with these numbers; on node 0, and each a core of its own, where the kernel does not say."""
    nodes = {
        cpu: int(found[1])
        for folder in sorted(system.glob("node/node*"))
        if (found := _NODE.fullmatch(folder.name)) is not None
        for cpu in cpu_list(_read(folder / "cpulist"))
    }
    return tuple(HostCpu(number, nodes.get(number, 0), _core(number, system)) for number in sorted(numbers))


def near_pci(address: str, devices: Path = _PCI) -> list[int]:
    """The CPUs near the device with a PCI address such as ``0000:81:01.0``; none if it is missing."""
    pci.parts(address)  # no other text becomes part of a path
    return cpu_list(_read(devices / address / "local_cpulist"))


def _core(number: int, system: Path) -> int:
    siblings = cpu_list(_read(system / f"cpu/cpu{number}/topology/thread_siblings_list"))
    return min(siblings, default=number)


def cpu_list(text: str) -> list[int]:
    """The numbers in a list such as ``0-3,8``; none for a text that is no such list."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return []
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
