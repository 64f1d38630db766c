"""Writes of instances' status: how often, and whether the cache shows them already.

What a guest's libvirt says may change with every event, and virt-handler's requests are there for all guests.
"""

from __future__ import annotations

import asyncio

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.objects import meta
from kubecore.runtime import key_of
from kubecore.runtime.metrics import RecentCounts
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceStatus
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler import status
from virtplane.compute.handler.api import in_time
from virtplane.compute.handler.rate import RateLimit
from virtplane.compute.syncs import SYNCS

_UNSEEN_SECONDS = 30.0
"""A cache that has not caught up by then never will: the API's storage was put back to an earlier time."""


_WRITES = (20, 10.0)
"""As many writes of one instance's status in so many seconds; a guest that starts has half of them."""


_MOST_COUNTED = 1000
"""More than the guests of a node."""


class StatusWrites:
    """Writes statuses, and remembers which version each write made."""

    def __init__(self, client: Client) -> None:
        self.counts = RecentCounts(*SYNCS, _MOST_COUNTED)
        self._client = client
        self._last: dict[str, tuple[int, float]] = {}
        """The resourceVersion of our own recent last write, and when that was, by the instance's UID."""
        self._limits: dict[str, tuple[RateLimit, float]] = {}
        """With the time of the last write, by the instance's UID."""

    def is_unseen(self, vmi: VirtualMachineInstance) -> bool:
        """Whether this instance, from the cache, does not show our own last write yet."""
        written, moment = self._last.get(vmi.metadata.uid, (0, 0.0))
        is_recent = asyncio.get_running_loop().time() - moment < _UNSEEN_SECONDS
        return is_recent and _version(vmi.metadata.resource_version) < written

    def is_too_often(self, vmi: VirtualMachineInstance) -> bool:
        """Count a write of that instance's status; returns whether it has to wait."""
        now = asyncio.get_running_loop().time()
        _, seconds = _WRITES
        self._limits = {uid: each for uid, each in self._limits.items() if now - each[1] < seconds}
        uid = vmi.metadata.uid
        limit, _ = self._limits.get(uid) or (RateLimit(*_WRITES, asyncio.get_running_loop().time), now)
        self._limits[uid] = limit, now
        return limit.exceeded()

    async def write(self, vmi: VirtualMachineInstance, fresh: VirtualMachineInstanceStatus) -> None:
        """Replace the status of `vmi`; nothing happens where the instance is gone. Raises StatusError."""
        operations = status.patch(vmi, fresh)
        namespace, name = key_of(vmi)
        try:
            written = await in_time(
                self._client.patch(VIRTUAL_MACHINE_INSTANCES, name, operations, namespace, type="json")
            )
        except StatusError as failure:
            if failure.code == 404:
                return
            raise
        self.counts.add(namespace, name)
        now = asyncio.get_running_loop().time()
        recent = {uid: each for uid, each in self._last.items() if now - each[1] < _UNSEEN_SECONDS}
        self._last = {**recent, vmi.metadata.uid: (_version(meta.resource_version(written)), now)}


def _version(resource_version: str) -> int:
    """The resourceVersion of an object as a number."""
    return int(resource_version) if resource_version.isdecimal() else 0
