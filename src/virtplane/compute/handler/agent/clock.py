"""Sets a guest's clock when a pause has ended: the clock stood still meanwhile.

As in KubeVirt, the guest's agent sets it, and is asked again for a minute: it needs a moment, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import libvirt

from virtplane.compute.handler.libvirtd.calls import DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.connections import Connections

logger = logging.getLogger(__name__)

_ATTEMPTS = 60
_WAIT_SECONDS = 1.0
_UNSUPPORTED = (libvirt.VIR_ERR_OPERATION_UNSUPPORTED, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED)
"""The agent cannot set the time, or the guest has no channel for an agent."""


class GuestClock:
    """The clock of one guest. `now` tells the seconds since the epoch."""

    def __init__(
        self, domain: str, vmi: str, lines: Connections, now: Callable[[], float] = time.time
    ) -> None:
        self._domain, self._vmi, self._lines, self._now = domain, vmi, lines, now
        self._setting: asyncio.Task[None] | None = None

    def follow(self, before: DomainState | None, after: DomainState | None) -> None:
        """Set the clock if the guest runs on after a pause. Nothing waits for it: an agent may hang."""
        if before is None or after is None or (before.status, after.status) != ("Paused", "Running"):
            return
        if self._setting is None or self._setting.done():
            self._setting = asyncio.create_task(self._set(), name=f"clock-{self._domain}")

    async def _set(self) -> None:
        failure = "its agent is not connected"
        for _ in range(_ATTEMPTS):
            hypervisor = self._lines.hypervisor
            if hypervisor is not None and hypervisor.agent_connected:
                try:
                    await hypervisor.set_time(self._domain, int(self._now()))
                except HypervisorError as error:
                    failure = str(error)
                    if error.code in _UNSUPPORTED:
                        break
                else:
                    return
            await asyncio.sleep(_WAIT_SECONDS)
        extra = {"vmi": self._vmi, "err": failure}
        logger.info(
            "The guest's clock was not set after a pause; it lags unless the guest sets it", extra=extra
        )

    async def close(self) -> None:
        """End an attempt that is under way."""
        if self._setting is not None:
            self._setting.cancel()
            await asyncio.gather(self._setting, return_exceptions=True)
