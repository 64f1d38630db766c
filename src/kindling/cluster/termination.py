"""Graceful termination of pods when the cluster stops: SIGTERM to their containers, then a grace period."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from kindling.node.cgroup_hierarchies import hierarchies


def terminate(pids: Iterable[int], grace_seconds: float) -> list[int]:
    """Send SIGTERM to processes that catch it and wait; returns those that still run.

    The first process of a container ignores SIGTERM unless it has a handler; then waiting would be useless.
    """
    handles: dict[int, int] = {}
    for pid in pids:
        if not catches_sigterm(pid):
            continue
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        handles[handle] = pid
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        except ProcessLookupError:
            os.close(handle)
            del handles[handle]
    _wait(handles, grace_seconds)
    for handle in handles:
        os.close(handle)
    return sorted(handles.values())


def _wait(handles: dict[int, int], seconds: float) -> None:
    """Wait for the processes to end; removes from `handles` those that do."""
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    deadline = time.monotonic() + seconds
    while handles and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poller.poll(left * 1000):
            poller.unregister(handle)
            os.close(handle)
            del handles[handle]


def catches_sigterm(pid: int) -> bool:
    """Whether a process catches SIGTERM."""
    return bool(int(_status(pid).get("SigCgt", "0"), 16) & (1 << (signal.SIGTERM - 1)))


def first_processes(pids: Collection[int]) -> list[int]:
    """The first process of each container: its parent, the shim, is not among `pids`."""
    return [pid for pid in pids if int(_status(pid).get("PPid", "0")) not in pids]


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def pod_processes(cgroup: str) -> set[int]:
    """All processes in the cgroups of the pods below `cgroup`, an instance's or a node's."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        root = hierarchy / cgroup.lstrip("/")
        for file in root.rglob("cgroup.procs") if root.is_dir() else ():
            try:
                found |= {int(line) for line in file.read_text().split()}
            except OSError:
                continue
    return found
