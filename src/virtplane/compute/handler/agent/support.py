"""Whether a guest agent can do what its instance needs: pure decisions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance

CONDITION = "AgentVersionNotSupported"
DEFAULT_VERSIONS = ("2.*", "3.*", "4.*", "5.*")

_BASIC = frozenset(
    f"guest-{name}"
    for name in (
        *("ping", "get-time", "info", "shutdown", "network-get-interfaces", "get-fsinfo", "get-host-name"),
        *("get-users", "get-timezone", "get-osinfo"),
    )
)
_KEYS = frozenset(f"guest-ssh-{name}-authorized-keys" for name in ("get", "add", "remove"))
_OLD_KEYS = frozenset(
    f"guest-{name}" for name in ("exec", "exec-status", "file-open", "file-close", "file-read", "file-write")
)
_PASSWORD = frozenset({"guest-set-user-password"})


def shortcoming(
    vmi: VirtualMachineInstance, version: str, commands: Collection[str], versions: Iterable[str]
) -> str:
    """What the agent lacks, in KubeVirt's words; empty where it has everything, or says nothing of itself.

    An agent that does not list its commands is judged by its version, which must match one of the regular
    expressions `versions`.
    """
    if not commands:
        is_known = not version or any(_matches(pattern, version) for pattern in versions)
        return "" if is_known else "This guest agent doesn't support required basic commands"
    present = set(commands)
    if not present >= _BASIC:
        return "This guest agent doesn't support required basic commands"
    if _wants_keys(vmi) and not (present >= _KEYS or present >= _OLD_KEYS):
        return "This guest agent doesn't support required public key commands"
    if _wants_password(vmi) and not present >= _PASSWORD:
        return "This guest agent doesn't support required password commands"
    return ""


def _matches(pattern: str, version: str) -> bool:
    try:
        return re.match(pattern, version) is not None
    except re.error:
        return False


def _wants_keys(vmi: VirtualMachineInstance) -> bool:
    keys = (credential.ssh_public_key for credential in vmi.spec.access_credentials)
    return any(each is not None and each.propagation_method.qemu_guest_agent is not None for each in keys)


def _wants_password(vmi: VirtualMachineInstance) -> bool:
    return any(credential.user_password is not None for credential in vmi.spec.access_credentials)
