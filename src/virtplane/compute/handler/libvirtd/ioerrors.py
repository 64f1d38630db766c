"""Guests that libvirt paused because a disk's I/O failed, as in a full storage pool.

Such a guest is resumed again and again: what failed, it writes once more, and nothing is lost once there is
room. The first attempt is made at once, the next after 10 seconds, and each wait is twice as long as the one
before, 3 minutes at most. The waits and the texts are KubeVirt's.
"""

from __future__ import annotations

import asyncio
import logging

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor

logger = logging.getLogger(__name__)

EVENT = "IOerror"
PAUSED = DomainState("Paused", "IOError")

_FIRST_WAIT_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 180.0
_WORKS_AFTER_SECONDS = 30.0
"""A guest that has run for so long after an attempt has recovered."""


class Attempts:
    """When to resume a guest. Times are in seconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._wait = 0.0
        self._last = 0.0

    def is_due(self, now: float) -> bool:
        """Whether to resume the guest, which is paused, now; if so, the next wait begins."""
        if self._wait and now < self._last + self._wait:
            return False
        self._wait = min(self._wait * 2, _LONGEST_WAIT_SECONDS) or _FIRST_WAIT_SECONDS
        self._last = now
        return True

    def see_running(self, now: float) -> None:
        """The guest runs."""
        if now >= self._last + _WORKS_AFTER_SECONDS:
            self._wait = 0.0


class IoErrors:
    """The I/O errors of one guest; `domain` is the name of its domain."""

    def __init__(self, domain: str, vmi: str) -> None:
        self._domain = domain
        self._vmi = vmi
        self._attempts = Attempts()

    async def follow(
        self, vmi: VirtualMachineInstance, state: DomainState, hypervisor: Hypervisor
    ) -> list[str]:
        """Resume the guest if an I/O error has paused it and the wait is over; returns what its owner should
        know of its disks. Raises HypervisorError.
        """
        now = asyncio.get_running_loop().time()
        if state != PAUSED:
            self._attempts.see_running(now)
            return []
        if not self._attempts.is_due(now):
            return []
        errors = await hypervisor.disk_errors(self._domain)
        found = [
            text(volume.name, lacks_space=errors[volume.target])
            for volume in vmi.status.volume_status
            if volume.target in errors
        ]
        message = "An I/O error paused the guest; resuming it. Look at the storage of its disks"
        logger.warning(message, extra={"vmi": self._vmi, "err": "; ".join(found)})
        await hypervisor.resume(self._domain)
        return found


def text(volume: str, *, lacks_space: bool) -> str:
    """What the owner of a guest is told about one of its volumes."""
    if lacks_space:
        return f"VM Paused due to not enough space on volume: {volume}"
    return f"VM Paused due to IO error at the volume: {volume}"
