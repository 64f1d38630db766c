"""Access credentials that the agent of a running guest sets: SSH keys and passwords of its users.

The pod has the secrets mounted, so what the cluster changes in them reaches the guest without a restart. What
cloud-init sets is handled elsewhere (``storage.cloudinit``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from virtplane.api.kubevirt_v1.credentials import AccessCredentialSecretSource
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import PRIVATE_DIRECTORY
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.threads import in_thread

OFFLINE = "Guest agent is offline"
_GRACE_SECONDS = 15.0
"""An agent that is not there is told of so late, as in KubeVirt: most guests boot meanwhile."""
_RESYNC_SECONDS = 300.0
"""Set again after this time, in case somebody changed it inside the guest."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may log in to the guest, and how."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All authorized SSH keys by user."""
    passwords: Mapping[str, str] = field(default_factory=dict)
    """Passwords by user."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of setting the credentials; `message` is empty on success."""

    succeeded: bool
    message: str = ""


def concern(vmi: VirtualMachineInstance) -> bool:
    """Whether the instance has credentials that the guest agent must set."""
    return any(True for _ in _keys(vmi)) or any(True for _ in _password_secrets(vmi))


def wanted(vmi: VirtualMachineInstance, root: Root) -> Access:
    """The credentials in the secrets mounted in the pod with the file system `root`. Raises OSError if one is
    missing.
    """
    keys: dict[str, dict[str, None]] = {}
    passwords: dict[str, str] = {}
    for secret, users in _keys(vmi):
        texts = _texts(root, secret)
        lines = [line.strip() for text in texts.values() for line in text.splitlines() if line.strip()]
        for user in users:
            keys.setdefault(user, {}).update(dict.fromkeys(lines))
    for secret in _password_secrets(vmi):
        passwords |= {user: text.strip("\n") for user, text in _texts(root, secret).items()}
    return Access({user: tuple(lines) for user, lines in keys.items()}, passwords)


def _keys(vmi: VirtualMachineInstance) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Secrets with SSH keys, and the users to whom the keys belong."""
    for credential in vmi.spec.access_credentials:
        keys = credential.ssh_public_key
        if keys is not None and keys.propagation_method.qemu_guest_agent is not None:
            yield _name(keys.source.secret), keys.propagation_method.qemu_guest_agent.users


def _password_secrets(vmi: VirtualMachineInstance) -> Iterator[str]:
    for credential in vmi.spec.access_credentials:
        passwords = credential.user_password
        if passwords is not None and passwords.propagation_method.qemu_guest_agent is not None:
            yield _name(passwords.source.secret)


def _name(secret: AccessCredentialSecretSource | None) -> str:
    return secret.secret_name if secret is not None else ""


def _texts(root: Root, secret: str) -> dict[str, str]:
    return root.texts(f"{PRIVATE_DIRECTORY}/secret/{secret}-access-cred")


def _read(vmi: VirtualMachineInstance, open_root: Callable[[], Root]) -> Access:
    with open_root() as root:
        return wanted(vmi, root)


class CredentialKeeper:
    """Sets the credentials of one guest when they change."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        """The last one; None for instances without such credentials."""
        self._set: Access | None = None
        self._set_at = 0.0
        self._offline_since: float | None = None

    def agent_is_offline(self, vmi: VirtualMachineInstance, now: float) -> float:
        """Record that the agent is not connected: the credentials are set when it is.

        Gives after how many seconds that is to be told; 0 where it is, or where nobody needs the agent. `now`
        is in seconds of any clock that does not go back.
        """
        self._set = None
        if not concern(vmi):
            self.outcome = None
            return 0.0
        if self._offline_since is None:
            self._offline_since = now
        left = self._offline_since + _GRACE_SECONDS - now
        if left > 0:
            return left
        self.outcome = Outcome(False, OFFLINE)
        return 0.0

    async def keep(
        self, vmi: VirtualMachineInstance, open_root: Callable[[], Root], hypervisor: Hypervisor, domain: str
    ) -> None:
        """Set the credentials that are not set yet. `open_root` opens the launcher's file system."""
        self._offline_since = None
        if not concern(vmi):
            self.outcome = None
            return
        try:
            access = await in_thread("credentials", _read, vmi, open_root)
            if access != self._set or time.monotonic() - self._set_at > _RESYNC_SECONDS:
                for user, keys in access.keys.items():
                    await hypervisor.set_authorized_keys(domain, user, keys)
                for user, password in access.passwords.items():
                    await hypervisor.set_password(domain, user, password)
                self._set, self._set_at = access, time.monotonic()
            self.outcome = Outcome(True)
        except (HypervisorError, OSError) as error:
            self._set = None
            self.outcome = Outcome(False, str(error))
