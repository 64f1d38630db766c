"""The guest's probes as probes of the compute container."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.probes import Probe

_START_SECONDS = 10
"""Time given to QEMU before a guest's own delay begins."""


def container_probe(probe: Probe, domain: str) -> JsonObject:
    """The container's probe for a probe of the guest. Commands and pings go through the guest agent of
    `domain`.
    """
    result = encode(probe)
    result["initialDelaySeconds"] = (probe.initial_delay_seconds or 0) + _START_SECONDS
    timeout = probe.timeout_seconds or 1
    if probe.exec is not None:
        # A probe without a command is never healthy; virt-probe says so.
        program, *arguments = probe.exec.command or [""]
        result["exec"] = {"command": _probe_command(domain, timeout, "--command", program, "--", *arguments)}
        result["timeoutSeconds"] = timeout + 1
    elif probe.guest_agent_ping is not None:
        del result["guestAgentPing"]
        result["exec"] = {"command": _probe_command(domain, timeout, "--guestAgentPing")}
        result["timeoutSeconds"] = timeout + 1
    return result


def _probe_command(domain: str, timeout_seconds: int, *rest: str) -> list[str]:
    return ["virt-probe", "--domainName", domain, "--timeoutSeconds", str(timeout_seconds), *rest]
