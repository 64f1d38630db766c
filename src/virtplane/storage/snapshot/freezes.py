"""Freezes the file systems of a snapshot's guest while its volumes are taken."""

from __future__ import annotations

import math

from kubecore.json import JsonObject
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshotContent
from virtplane.cluster.caches import Cluster


class Freezes:
    """Asks virt-api to freeze and to thaw the guest of a content, where there is an agent to do it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def freeze(self, content: VirtualMachineSnapshotContent, seconds: float) -> None:
        """Freeze the guest, which thaws by itself after `seconds` (0: never). Raises StatusError.

        A guest that is frozen already keeps the end of that freeze.
        """
        # Zero is for ever, so that a fraction of a second is a second.
        await self._ask(content, "freeze", {"unfreezeTimeout": f"{math.ceil(seconds)}s"})

    async def thaw(self, content: VirtualMachineSnapshotContent) -> None:
        """Thaw the guest. Raises StatusError."""
        await self._ask(content, "unfreeze", {})

    def _guest(self, content: VirtualMachineSnapshotContent) -> VirtualMachineInstance | None:
        name = content.spec.source.virtual_machine.metadata.name
        vmi = self._cluster.vmis.get(content.metadata.namespace, name)
        if vmi is None or is_true(vmi.status.conditions, "Paused"):
            return None
        return vmi if is_true(vmi.status.conditions, "AgentConnected") else None

    async def _ask(self, content: VirtualMachineSnapshotContent, action: str, body: JsonObject) -> None:
        guest = self._guest(content)
        if guest is None:
            return
        base = f"{kinds.SUBRESOURCES_PATH}/namespaces/{guest.metadata.namespace}/virtualmachineinstances"
        await self._cluster.client.request("PUT", f"{base}/{guest.metadata.name}/{action}", body=body)
