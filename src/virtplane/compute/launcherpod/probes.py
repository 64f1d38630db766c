"""The guest's probes as probes of the container that runs it."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object

_START_SECONDS = 10
"""Time given to QEMU before a guest's own delay begins."""


def container_probe(probe: JsonObject, domain: str) -> JsonObject:
    """The container's probe for a guest's. Commands and pings go through the guest agent of `domain`."""
    result = deep_copy(probe)
    result["initialDelaySeconds"] = get_int(probe, "initialDelaySeconds") + _START_SECONDS
    timeout = get_int(probe, "timeoutSeconds") or 1
    if "exec" in probe:
        # A probe without a command is never healthy; virt-probe says so.
        program, *arguments = get_list(get_object(probe, "exec"), "command") or [""]
        result["exec"] = {"command": _probe_command(domain, timeout, "--command", program, "--", *arguments)}
        result["timeoutSeconds"] = timeout + 1
    elif "guestAgentPing" in probe:
        del result["guestAgentPing"]
        result["exec"] = {"command": _probe_command(domain, timeout, "--guestAgentPing")}
        result["timeoutSeconds"] = timeout + 1
    return result


def _probe_command(domain: str, timeout_seconds: int, *rest: str) -> list[str]:
    return ["virt-probe", "--domainName", domain, "--timeoutSeconds", str(timeout_seconds), *rest]
