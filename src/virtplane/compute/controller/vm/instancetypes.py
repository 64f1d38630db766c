"""Instance types and preferences of a VM: found, pinned in revisions, applied to its instance."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.compute.controller.cluster import Cluster
from virtplane.compute.controller.vm.status import SyncError


class InstancetypeSync:
    """The part of the VM controller that deals with instance types and preferences."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def sync(self, vm: JsonObject) -> SyncError | None:
        return None

    def apply(self, vm: JsonObject, instance: JsonObject) -> SyncError | None:
        return None

    def expanded(self, vm: JsonObject, spec: JsonObject) -> JsonObject:
        return spec
