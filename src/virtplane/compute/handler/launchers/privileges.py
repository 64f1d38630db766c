"""What only the node's root can give a guest's threads: real-time priority, and memory that stays in place.

A launcher may name its threads as it likes: what it gets by that runs on its pod's own CPUs.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.placement import realtime_vcpus
from virtplane.compute.domain.processor import memory_bytes
from virtplane.compute.handler.launchers.process import Process, pods_of

_PRIORITY = 1
_VCPU = re.compile(r"CPU (?P<number>[0-9]{1,4})/(?:KVM|TCG)", re.ASCII)
"""The names that QEMU gives to the threads of virtual CPUs."""

_EXTRA_BYTES = 1 << 30
"""What a guest with devices of the host locks beside its memory: registers and tables of the devices."""


def locks_memory(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest's memory must stay where it is: devices write to it, or the instance says so."""
    domain = vmi.spec.domain
    reserved = domain.memory.reserved_overhead
    if reserved is not None and reserved.mem_lock:
        return reserved.mem_lock == "Required"
    devices = domain.devices
    passed = (
        devices.gpus or devices.host_devices or any(card.sriov is not None for card in devices.interfaces)
    )
    return bool(passed) or domain.cpu.realtime is not None


def let_lock(vmi: VirtualMachineInstance, launcher: Process) -> None:
    """Raise the launcher's limit of locked memory, which libvirt and QEMU inherit, where it is needed.

    Raises OSError.
    """
    if not locks_memory(vmi):
        return
    wanted = memory_bytes(vmi.spec.domain) + _EXTRA_BYTES
    soft, hard = resource.prlimit(launcher.pid, resource.RLIMIT_MEMLOCK)
    if not launcher.is_alive:
        raise ProcessLookupError(f"process {launcher.pid} has ended")
    if not _reaches(soft, wanted):
        resource.prlimit(
            launcher.pid, resource.RLIMIT_MEMLOCK, (wanted, hard if _reaches(hard, wanted) else wanted)
        )


def _reaches(limit: int, wanted: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= wanted


def schedule_in_real_time(vmi: VirtualMachineInstance, pod_uid: str, proc: Path = Path("/proc")) -> None:
    """Give the virtual CPUs of the instance's mask real-time priority, where it has them. Repeatable.

    Raises ValueError for a mask of other CPUs, and OSError where the node's kernel does not allow it.
    """
    if vmi.spec.domain.cpu.realtime is None:
        return
    for thread in vcpu_threads(pod_uid, realtime_vcpus(vmi.spec.domain), proc):
        if os.sched_getscheduler(thread) != os.SCHED_FIFO:
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(_PRIORITY))


def vcpu_threads(pod_uid: str, vcpus: Sequence[int], proc: Path) -> Iterator[int]:
    """The threads of the virtual CPUs among the processes of a pod."""
    for folder in proc.iterdir():
        if folder.name.isdecimal() and pod_uid in pods_of(_read(folder / "cgroup")):
            for task in _tasks(folder):
                found = _VCPU.fullmatch(_read(task / "comm").strip())
                if found is not None and int(found["number"]) in vcpus:
                    yield int(task.name)


def _tasks(process: Path) -> list[Path]:
    try:
        return sorted((process / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return ""
