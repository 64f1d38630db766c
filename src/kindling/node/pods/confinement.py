"""Restrictions of a pod's sandbox: what its link lets through.

The link is filtered (`pod_filter`), its port of the bridge is isolated (`bridge_ports`), and the rules of
network policies are loaded (`policy_enforcer`).

It is set up after the sandbox is created and before any container is started in it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable

from kindling.network import bridge_ports, nftables, pod_filter
from kindling.network.bridge_ports import PortRefused
from kindling.network.pod_filter import PodLink
from kindling.network.policy_enforcer import NotProtected, PolicyEnforcer
from kindling.node.pods import identity
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import RuntimeFailure, Sandbox
from kubecore.json import JsonObject, get_bool, get_str

_log = logging.getLogger(__name__)


class Confinement:
    """Restricts the sandboxes of one node."""

    def __init__(self, runtime: Containerd, policies: PolicyEnforcer) -> None:
        self._runtime = runtime
        self._policies = policies
        self._confined: dict[str, str] = {}
        self._left: dict[str, Sandbox] = {}
        """Sandboxes that ran already and could not be confined yet; the value is kept to name the pod."""

    async def secure(self, pod: JsonObject, sandbox_id: str) -> None:
        """Set up the restrictions of a pod's sandbox unless they are in place. Raises RuntimeFailure,
        OSError.
        """
        uid = get_str(pod, "metadata", "uid")
        if self._confined.get(uid) == sandbox_id:
            return
        link = await self._filter(sandbox_id)
        name = identity.display_name(pod)
        if link is None and not get_bool(pod, "spec", "hostNetwork"):
            raise RuntimeFailure(f"the sandbox of {name} shows no link that could be filtered")
        if link is not None:
            try:
                await self._policies.protect(pod, link.addresses)
            except NotProtected as error:
                raise RuntimeFailure(f"network policies of {name} cannot be enforced: {error}") from error
        self._confined[uid] = sandbox_id
        self._left.pop(sandbox_id, None)

    async def adopt(self, sandboxes: Iterable[Sandbox]) -> None:
        """Filter the links of pods that run already: the agent was restarted, maybe by another version."""
        self._left = {sandbox.id: sandbox for sandbox in sandboxes if sandbox.ready}
        await self._adopt_left(is_first=True)
        await self._remove_unused()

    async def sweep(self) -> None:
        """Remove the filters of deleted links (newer kernels keep them); filter links where that failed."""
        await self._adopt_left(is_first=False)
        await self._remove_unused()

    async def _adopt_left(self, *, is_first: bool) -> None:
        for sandbox in list(self._left.values()):
            try:
                link = await self._link(sandbox.id)
                if link is not None:
                    # First of all, so that no other failure opens the pod.
                    self._policies.attach(sandbox.uid, link.addresses)
                    await _apply(link, sandbox.id)
            except (RuntimeFailure, OSError) as error:
                if isinstance(error, RuntimeFailure) and error.is_not_found:
                    self._left.pop(sandbox.id, None)
                elif is_first:
                    where = f"{sandbox.namespace}/{sandbox.name}"
                    text = (
                        "pod %s runs without a filter on its link, trying again; delete it if this stays: %s"
                    )
                    _log.error(text, where, error)
            else:
                self._left.pop(sandbox.id, None)

    async def _remove_unused(self) -> None:
        here = {name for _, name in socket.if_nameindex()}
        try:
            found = await nftables.chains(pod_filter.FAMILY)
            gone = [chain for table, chain in found if table == pod_filter.TABLE and chain not in here]
            if gone:
                await nftables.load(pod_filter.removal(gone))
        except (nftables.RulesRefused, OSError) as error:
            _log.warning("removing nftables filters of deleted pod links failed, trying again: %s", error)

    def forget(self, uid: str) -> None:
        """Forget a deleted pod."""
        self._confined.pop(uid, None)
        self._left = {name: sandbox for name, sandbox in self._left.items() if sandbox.uid != uid}
        self._policies.forget(uid)

    async def _filter(self, sandbox_id: str) -> PodLink | None:
        """Filter a sandbox's link and isolate its port; returns it if there is one. Raises RuntimeFailure."""
        link = await self._link(sandbox_id)
        if link is not None:
            await _apply(link, sandbox_id)
        return link

    async def _link(self, sandbox_id: str) -> PodLink | None:
        """A sandbox's link, if there is one. Raises RuntimeFailure."""
        try:
            return pod_filter.pod_link(await self._runtime.sandbox_network(sandbox_id))
        except ValueError as error:
            raise _unfiltered(sandbox_id, error) from error


async def _apply(link: PodLink, sandbox_id: str) -> None:
    """Filter a link and isolate its port. Raises RuntimeFailure, OSError."""
    try:
        await nftables.load(pod_filter.ruleset(link))
        await bridge_ports.isolate(link)
    except (nftables.RulesRefused, PortRefused) as error:
        raise _unfiltered(sandbox_id, error) from error


def _unfiltered(sandbox_id: str, error: Exception) -> RuntimeFailure:
    return RuntimeFailure(f"the link of sandbox {sandbox_id} cannot be filtered: {error}")
