"""Applies changes of a VM to its running instance, or sets the condition RestartRequired."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import patch
from virtplane.compute.controller.vm import (
    interfaces,
    liveupdate,
    metadata,
    reading,
    restart,
    starting,
    volumemigration,
)
from virtplane.compute.controller.vm.draft import Draft
from virtplane.compute.controller.vm.instancetypes import InstancetypeSync
from virtplane.compute.controller.vm.status import SyncError


class RunningInstances:
    """Updates running instances when their VM changes."""

    def __init__(self, cluster: Cluster, types: InstancetypeSync) -> None:
        self._cluster = cluster
        self._types = types

    async def sync_generation(self, vm: VirtualMachine, vmi: VirtualMachineInstance) -> None:
        """Record on the instance the VM's current generation if its template is unchanged."""
        current = str(vm.metadata.generation)
        if vmi.metadata.annotations.get(starting.GENERATION_ANNOTATION) == current:
            return
        started = reading.started_spec(self._cluster, vmi)
        if started is None or started.template != vm.spec.template:
            return
        mark = {"metadata": {"annotations": {starting.GENERATION_ANNOTATION: current}}}
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        await self._cluster.client.patch(kinds.VIRTUAL_MACHINE_INSTANCES, name, mark, namespace, type="merge")

    async def sync(self, draft: Draft, vmi: VirtualMachineInstance) -> SyncError | None:
        """Apply live updates to the instance; set RestartRequired for the other changes."""
        former = meta.find_condition(draft.conditions, "RestartRequired")
        error = await self._follow(draft, vmi)
        if former is not None:
            conditions.keep_time(draft.conditions, former)
        return error

    async def _follow(self, draft: Draft, vmi: VirtualMachineInstance) -> SyncError | None:
        settings, vm, known = self._cluster.settings(), draft.vm, draft.conditions
        started = reading.started_spec(self._cluster, vmi)
        if started is not None:
            before, after = self._types.expanded(vm, started), self._types.expanded(vm, vm.spec)
            if restart.needs_restart(before, after, vmi, live_update=settings.live_update):
                _require_restart(known, restart.MESSAGE)
            else:
                conditions.drop(known, "RestartRequired")
        await self._patch(vmi, metadata.instance_operations(vm, vmi))
        if vm.spec.update_volumes_strategy == "Migration":
            error = await volumemigration.sync(self._cluster, draft, vmi)
            if error is not None:
                return error
        elif settings.gate("DeclarativeHotplugVolumes") and not settings.gate("HotplugVolumes"):
            await self._patch(vmi, liveupdate.volume_operations(vm, vmi))
        await self._patch_machine(draft, metadata.template_operations(vm, vmi))
        if not conditions.has_status(known, "RestartRequired", "True"):
            await self._patch(vmi, interfaces.instance_operations(vm, vmi))
            # Interfaces that have left the guest leave the template too.
            await self._patch_machine(draft, interfaces.template_operations(draft.vm, vmi))
        if not settings.live_update or conditions.has_status(known, "RestartRequired", "True"):
            return None
        update = liveupdate.live_update(vm, vmi, cpu_allocation_ratio=settings.cpu_allocation_ratio)
        await self._patch(vmi, update.operations)
        if update.restart_message:
            _require_restart(known, update.restart_message)
        return update.error

    async def _patch_machine(self, draft: Draft, operations: list[JsonObject]) -> None:
        """Change the VM, in the draft too."""
        if operations:
            name, namespace = draft.vm.metadata.name, draft.vm.metadata.namespace
            answer = await self._cluster.client.patch(
                kinds.VIRTUAL_MACHINES, name, operations, namespace, type="json"
            )
            draft.vm = decode(VirtualMachine, answer)

    async def _patch(self, vmi: VirtualMachineInstance, operations: list[JsonObject]) -> None:
        await patch(self._cluster, kinds.VIRTUAL_MACHINE_INSTANCES, vmi, operations, must_exist=True)


def _require_restart(known: list[JsonObject], message: str) -> None:
    conditions.put(known, conditions.new_condition("RestartRequired", "True", message=message))
