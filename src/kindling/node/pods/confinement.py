"""Restrictions of a pod's sandbox: an nftables filter on its link.

It is set up after the sandbox is created and before any container is started in it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable

from kindling.network import nftables, pod_filter
from kindling.node.pods import identity
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import RuntimeFailure, Sandbox
from kubecore.json import JsonObject, get_bool, get_str

_log = logging.getLogger(__name__)


class Confinement:
    """Restricts the sandboxes of one node."""

    def __init__(self, runtime: Containerd) -> None:
        self._runtime = runtime
        self._confined: dict[str, str] = {}

    async def secure(self, pod: JsonObject, sandbox_id: str) -> None:
        """Set up the restrictions of a pod's sandbox unless they are in place. Raises RuntimeFailure,
        OSError.
        """
        uid = get_str(pod, "metadata", "uid")
        if self._confined.get(uid) == sandbox_id:
            return
        is_filtered = await self._filter(sandbox_id)
        if not is_filtered and not get_bool(pod, "spec", "hostNetwork"):
            name = identity.display_name(pod)
            raise RuntimeFailure(f"the sandbox of {name} shows no link that could be filtered")
        self._confined[uid] = sandbox_id

    async def adopt(self, sandboxes: Iterable[Sandbox]) -> None:
        """Filter the links of pods that run already: the agent was restarted, maybe by another version."""
        for sandbox in sandboxes:
            if sandbox.ready:
                try:
                    await self._filter(sandbox.id)
                except (RuntimeFailure, OSError) as error:
                    where = f"{sandbox.namespace}/{sandbox.name}"
                    _log.error("pod %s runs without a filter on its link; delete it: %s", where, error)
        await self.sweep()

    async def sweep(self) -> None:
        """Remove the filters of deleted links (newer kernels keep them)."""
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

    async def _filter(self, sandbox_id: str) -> bool:
        """Filter a sandbox's link; returns whether it has one. Raises RuntimeFailure."""
        try:
            link = pod_filter.pod_link(await self._runtime.sandbox_network(sandbox_id))
            if link is not None:
                await nftables.load(pod_filter.ruleset(link))
        except (ValueError, nftables.RulesRefused) as error:
            raise RuntimeFailure(f"the link of sandbox {sandbox_id} cannot be filtered: {error}") from error
        return link is not None
