"""Probes by the guest's agent that an annotation pauses, while the agent is to be away."""

from __future__ import annotations

import logging

from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.launchers.control import LauncherLink

logger = logging.getLogger(__name__)

_TRUE = ("1", "t", "T", "true", "True", "TRUE")
"""What Go's strconv.ParseBool takes for true."""


class AgentProbes:
    """The probes of one guest; `vmi` is its instance's name for log lines."""

    def __init__(self, vmi: str) -> None:
        self._vmi = vmi
        self._paused: bool | None = None
        """What the launcher was told; None until it was told something."""

    async def follow(self, vmi: VirtualMachineInstance, link: LauncherLink) -> None:
        """Tell the launcher whether pings count. Raises LauncherBroken, LauncherGone."""
        probes = (vmi.spec.liveness_probe, vmi.spec.readiness_probe)
        if all(probe is None or probe.guest_agent_ping is None for probe in probes):
            return
        wanted = vmi.metadata.annotations.get(labels.PAUSE_AGENT_PROBES, "") in _TRUE
        if wanted == self._paused:
            return
        try:
            await link.request("pause-probes", paused=wanted)
        except ValueError:
            if wanted:
                text = (
                    "The guest's probes cannot be paused: its launcher is older. They can after its restart"
                )
                logger.warning(text, extra={"vmi": self._vmi})
        self._paused = wanted
