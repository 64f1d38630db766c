"""Which threads of QEMU serve which disks.

A policy, or one disk with a thread of its own, makes threads. The disks without one of their own share one
thread (``shared``), as many as there are disks up to twice the virtual CPUs (``auto``), or a pool of the size
that the instance names (``supplementalPool``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.compute.domain.disks import bus_of
from virtplane.compute.domain.processor import vcpu_count

AUTO = "auto"
POOL = "supplementalPool"
_THREADS_PER_CPU = 2


@dataclass(frozen=True, slots=True)
class IOThreads:
    """The number of threads, and the thread (from 1) of each disk that has one."""

    count: int = 0
    of_disk: dict[str, int] = field(default_factory=dict)


def plan(domain: DomainSpec, disks: Sequence[Disk]) -> IOThreads:
    """The threads of `domain` for `disks`; only virtio disks are served by them."""
    served = [disk for disk in disks if bus_of(disk) == "virtio"]
    own = [disk.name for disk in served if disk.dedicated_io_thread]
    shared = [disk.name for disk in served if not disk.dedicated_io_thread]
    policy = domain.io_threads_policy or ""
    if policy == POOL:
        # The pod has CPUs for the pool alone: no disk has a thread beside it.
        size = domain.io_threads.supplemental_pool_thread_count or 0
        return IOThreads(size, _in_turn([disk.name for disk in served], size))
    if not policy and not own:
        return IOThreads()
    common = _shared_threads(policy, len(shared), len(own), vcpu_count(domain))
    of_disk = _in_turn(shared, common)
    of_disk |= {name: number for number, name in enumerate(own, start=common + 1)}
    return IOThreads(common + len(own), of_disk)


def _shared_threads(policy: str, shared: int, own: int, cpus: int) -> int:
    """The threads that disks without one of their own share."""
    if policy != AUTO:
        return min(1, shared) if not policy else 1
    most = max(1, cpus * _THREADS_PER_CPU - own)
    return min(shared, most)


def _in_turn(names: Sequence[str], threads: int) -> dict[str, int]:
    return {name: 1 + index % threads for index, name in enumerate(names)} if threads else {}
