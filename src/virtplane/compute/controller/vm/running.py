"""What a VM's running instance gets of changes to the VM, and what has to wait for a restart."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vm import liveupdate, restart, starting, volumemigration
from virtplane.compute.controller.vm.instancetypes import InstancetypeSync
from virtplane.compute.controller.vm.status import SyncError


class RunningInstances:
    """Keeps running instances in line with their VMs."""

    def __init__(self, cluster: Cluster, types: InstancetypeSync) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._types = types

    async def sync_generation(self, vm: JsonObject, vmi: JsonObject) -> None:
        """Note at the instance that it runs the VM's present generation where its template is the same."""
        current = str(meta.generation(vm))
        if meta.annotations(vmi).get(starting.GENERATION_ANNOTATION) == current:
            return
        started = self._started_spec(vm, vmi)
        if started is None or started.get("template") != get_object(vm, "spec").get("template"):
            return
        patch = {"metadata": {"annotations": {starting.GENERATION_ANNOTATION: current}}}
        await self._client.patch(
            kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(vmi), patch, meta.namespace(vmi), type="merge"
        )

    async def sync(self, vm: JsonObject, vmi: JsonObject) -> SyncError | None:
        """Give the instance what can change while it runs; say in `vm` when the rest needs a restart."""
        known = vm.setdefault("status", {}).setdefault("conditions", [])
        former = meta.find_condition(known, "RestartRequired")
        error = await self._follow(vm, vmi, known)
        if former is not None:
            conditions.keep_time(known, former)
        return error

    async def _follow(self, vm: JsonObject, vmi: JsonObject, known: list[JsonObject]) -> SyncError | None:
        settings = self._cluster.settings()
        started = self._started_spec(vm, vmi)
        if started is not None:
            before, after = (
                self._types.expanded(vm, started),
                self._types.expanded(vm, get_object(vm, "spec")),
            )
            if restart.needs_restart(before, after, vmi, live_update=settings.live_update):
                _require_restart(known, restart.MESSAGE)
            else:
                conditions.drop(known, "RestartRequired")
        if get_str(vm, "spec", "updateVolumesStrategy") == "Migration":
            error = await volumemigration.sync(self._cluster, vm, vmi)
            if error is not None:
                return error
        elif settings.gate("DeclarativeHotplugVolumes") and not settings.gate("HotplugVolumes"):
            await patch_instance(self._client, vmi, liveupdate.volume_operations(vm, vmi))
        if not settings.live_update or conditions.has_status(known, "RestartRequired", "True"):
            return None
        update = liveupdate.live_update(vm, vmi, cpu_allocation_ratio=settings.cpu_allocation_ratio)
        await patch_instance(self._client, vmi, update.operations)
        if update.restart_message:
            _require_restart(known, update.restart_message)
        return update.error

    def _started_spec(self, vm: JsonObject, vmi: JsonObject) -> JsonObject | None:
        """The VM's spec when the instance was started, by its revision."""
        name = get_str(vmi, "status", "virtualMachineRevisionName")
        revision = self._cluster.revisions.get(meta.namespace(vm), name) if name else None
        return get_object(revision, "data", "spec") if revision else None


async def patch_instance(client: Client, vmi: JsonObject, operations: list[JsonObject]) -> None:
    """Apply a JSON patch to an instance; an empty one asks nothing of the server. Raises StatusError."""
    if operations:
        name, namespace = meta.name(vmi), meta.namespace(vmi)
        await client.patch(kinds.VIRTUAL_MACHINE_INSTANCES, name, operations, namespace, type="json")


def _require_restart(known: list[JsonObject], message: str) -> None:
    conditions.put(known, conditions.new_condition("RestartRequired", "True", message=message))
