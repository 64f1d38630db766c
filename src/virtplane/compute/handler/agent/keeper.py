"""What the guest agent says of its guest, and the freezing of its file systems."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.agent.credentials import CredentialKeeper
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.libvirtd import agentanswers
from virtplane.compute.handler.libvirtd.agentanswers import AgentFigures
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.connections import Connections
from virtplane.compute.handler.libvirtd.daemonconnection import AGENT_SECONDS
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.rate import RateLimit

logger = logging.getLogger(__name__)

_PING_SECONDS = 2
_QUERIES = (3, 15.0)
"""As many in so many seconds: each answer may differ from the one before, which is reported at once."""


class AgentKeeper:
    """Queries one guest's agent and sets the guest's credentials through it.

    `on_change` is called whenever the answers differ from those before.
    """

    def __init__(self, name: str, vmi: str, lines: Connections, on_change: Callable[[], None]) -> None:
        self.facts = GuestFacts()
        self.figures = AgentFigures()
        """Whatever changes in them changes nothing of the status."""
        self.credentials = CredentialKeeper()
        self._name = name
        self._vmi = vmi
        self._lines = lines
        self._on_change = on_change
        self._asking: asyncio.Task[None] | None = None
        self._reminder: asyncio.TimerHandle | None = None
        self._queries = RateLimit(*_QUERIES, asyncio.get_running_loop().time)

    async def recall(self, hypervisor: Hypervisor) -> None:
        """Ask whether the agent is there: its coming caused no event on a connection that is newer."""
        hypervisor.agent_connected = hypervisor.agent_connected or await self._answers(hypervisor)

    def refresh(self, vmi: VirtualMachineInstance, *, is_running: bool) -> None:
        """Start querying the guest agent, if it is connected and its guest is running.

        Nothing waits for the answer: an agent may hang, and always does while its guest is paused.
        """
        hypervisor = self._lines.hypervisor
        if hypervisor is None or not hypervisor.agent_connected:
            self.facts, self.figures = GuestFacts(), AgentFigures()
            self._miss(vmi)
            return
        if self.facts == GuestFacts():
            self.facts = GuestFacts(True)
        is_asking = self._asking is not None and not self._asking.done()
        if is_running and not is_asking and not self._queries.exceeded():
            self._asking = asyncio.create_task(self._ask(vmi, hypervisor), name=f"agent-{self._name}")

    def _miss(self, vmi: VirtualMachineInstance) -> None:
        """The agent is not there: look again once that is to be told."""
        loop = asyncio.get_running_loop()
        left = self.credentials.agent_is_offline(vmi, loop.time())
        if left and self._reminder is None:
            self._reminder = loop.call_later(left, self._remind)

    def _remind(self) -> None:
        self._reminder = None
        self._on_change()

    async def _ask(self, vmi: VirtualMachineInstance, hypervisor: Hypervisor) -> None:
        before = self.credentials.outcome
        link = self._lines.link
        if link is not None:
            await self.credentials.keep(vmi, link.process.root, hypervisor, self._name)
        try:
            facts = await self._guest_facts(hypervisor)
        except HypervisorError as error:
            extra = {"vmi": self._vmi, "err": str(error)}
            logger.info("The guest agent did not answer; trying again", extra=extra)
            return
        is_news = facts != self.facts or before != self.credentials.outcome
        if is_news and self._lines.hypervisor is hypervisor:
            self.facts = facts
            self._on_change()

    async def _guest_facts(self, hypervisor: Hypervisor) -> GuestFacts:
        """What the agent says; while the guest is frozen, its agent refuses to speak of anything else."""
        state = await hypervisor.freeze_state(self._name)
        if state == agentanswers.FROZEN:
            return replace(self.facts, freeze_state=state)
        info = await hypervisor.guest_info(self._name)
        found = await hypervisor.guest_interfaces(self._name)
        version, commands = self.facts.agent_version, self.facts.agent_commands
        if not commands:  # they stay the same while it is connected
            with contextlib.suppress(HypervisorError):
                about = agentanswers.version_and_commands(await hypervisor.agent_about(self._name))
                version, commands = about[0], tuple(each["name"] for each in about[1] if "enabled" in each)
        load = await self._load(hypervisor) if agentanswers.GET_LOAD in commands else {}
        self.figures = AgentFigures(agentanswers.measured_file_systems(info), load)
        return GuestFacts(
            True, agentanswers.os_info(info), agentanswers.interfaces(found), state, version, commands
        )

    async def _load(self, hypervisor: Hypervisor) -> dict[str, float]:
        command = f'{{"execute":"{agentanswers.GET_LOAD}"}}'
        with contextlib.suppress(HypervisorError):
            return agentanswers.load(await hypervisor.agent_command(self._name, command, AGENT_SECONDS))
        return {}

    async def freeze(self) -> None:
        """Quiesce the guest's file systems. Raises HypervisorError."""
        await self._lines.require_hypervisor().freeze(self._name)
        self._note_freeze(agentanswers.FROZEN)

    async def thaw(self) -> None:
        """End a freeze. Without one, the guest's hooks are not run. Raises HypervisorError."""
        hypervisor = self._lines.require_hypervisor()
        state = ""
        with contextlib.suppress(HypervisorError):
            state = await hypervisor.freeze_state(self._name)
        if state != agentanswers.THAWED:
            await hypervisor.thaw(self._name)
        self._note_freeze(agentanswers.THAWED)

    async def is_frozen(self) -> bool:
        """Whether the agent says so. Raises HypervisorError."""
        return await self._lines.require_hypervisor().freeze_state(self._name) == agentanswers.FROZEN

    def _note_freeze(self, state: str) -> None:
        if self.facts.agent_connected and self.facts.freeze_state != state:
            self.facts = replace(self.facts, freeze_state=state)
            self._on_change()

    async def close(self) -> None:
        """End the query that is under way."""
        if self._reminder is not None:
            self._reminder.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _answers(self, hypervisor: Hypervisor) -> bool:
        try:
            await hypervisor.agent_command(self._name, '{"execute":"guest-ping"}', _PING_SECONDS)
        except HypervisorError:
            return False
        return True
