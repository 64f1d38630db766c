"""What libvirt counts of a running guest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuestFigures:
    """What the hypervisor tells of a running guest."""

    cpu_nanoseconds: int
    cpus: int
    memory_kib: int
    hypervisor: str
    """Name and version, such as ``qemu-7.2.0``."""
