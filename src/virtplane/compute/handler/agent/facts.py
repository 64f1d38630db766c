"""What is known of a guest besides its domain's state."""

from __future__ import annotations

from dataclasses import dataclass

from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo
from virtplane.compute.handler.libvirtd.agentanswers import AgentInterface

_NO_OS_INFO = VirtualMachineInstanceGuestOSInfo()


@dataclass(frozen=True, slots=True)
class GuestFacts:
    """Facts about the guest besides its domain's state."""

    agent_connected: bool = False
    os_info: VirtualMachineInstanceGuestOSInfo = _NO_OS_INFO
    agent_interfaces: tuple[AgentInterface, ...] = ()
    freeze_state: str = ""
    """``frozen``, ``thawed``, or empty where it is not known."""
    agent_version: str = ""
    agent_commands: tuple[str, ...] = ()
    """The commands that the agent carries out; empty before it was asked."""
