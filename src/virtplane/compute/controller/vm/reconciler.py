"""The controller of virtual machines."""

from __future__ import annotations

import logging

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_lost_race, is_not_found
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta, times
from kubecore.patch.guarded import guarded_patch, same_version
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.compute.controller.vm import (
    datavolumes,
    failures,
    instancetypes,
    provisioner,
    snapshots,
    starting,
    status,
    strategy,
)
from virtplane.compute.controller.vm.requests import open_requests
from virtplane.compute.controller.vm.running import RunningInstances, patch_instance
from virtplane.compute.controller.vm.status import SyncError, View
from virtplane.compute.controller.vm.strategy import Decision
from virtplane.compute.controller.vmi.phases import VM_FINALIZER, is_final, phase_of

logger = logging.getLogger(__name__)

_ORPHAN = "orphan"
_RETRY_SECONDS = 5.0


class VmController:
    """Reconciles VirtualMachines."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._types = instancetypes.InstancetypeSync(cluster)
        self._running = RunningInstances(cluster, self._types)
        self.controller = Controller("virt-controller-vm", self._reconcile, workers=4)
        self.controller.watch(cluster.vms)
        self.controller.watch(cluster.vmis, self._vmi_keys)
        self.controller.watch(cluster.claims, self._claim_keys)
        self.controller.watch(cluster.revisions, owner_key("VirtualMachine"))
        if cluster.data_volumes is not None:
            self.controller.watch(cluster.data_volumes, self._data_volume_keys)
        for informer in (cluster.kubevirts, cluster.namespaces, cluster.informer(resources.STORAGE_CLASSES)):
            self.controller.depend(informer)
        for kind in (kinds.VOLUME_SNAPSHOT_CLASSES, kinds.DATA_SOURCES):
            optional = cluster.optional(kind)
            if optional is not None:
                self.controller.depend(optional)
        self._expected = Expectations(self.controller, cluster.vmis, owner_key("VirtualMachine"))

    def _vmi_keys(self, vmi: JsonObject) -> list[Key]:
        return [meta.key(vmi)]

    def _claim_keys(self, claim: JsonObject) -> list[Key]:
        users = self._cluster.vms.by_index("claim", f"{meta.namespace(claim)}/{meta.name(claim)}")
        return [meta.key(vm) for vm in users]

    def _data_volume_keys(self, data_volume: JsonObject) -> list[Key]:
        return [*self._claim_keys(data_volume), *owner_key("VirtualMachine")(data_volume)]

    async def _reconcile(self, key: Key) -> Result:
        may_act = await self._expected.settled(key)  # first: what is read then is what it is about
        vm = self._cluster.vms.get(*key)
        if vm is None:
            self._expected.forget(key)
            return DONE
        if await self._cluster.mark_observed(kinds.VIRTUAL_MACHINES, vm):
            return DONE
        vmi = await self._own_instance(vm)
        error: SyncError | None = None
        new = deep_copy(vm)
        wait = 0.0
        if may_act:
            try:
                error, wait = await self._sync(key, new, vmi)
            except StatusError as failure:
                if is_lost_race(failure):
                    raise
                error = SyncError("FailedUpdateError", failure.message)
            except strategy.StrategyError as failure:
                error = SyncError("FailedCreate", str(failure))
        if error is not None:
            logger.info("VM %s/%s: %s", *key, error.message)
        await self._update_status(key, vm, new, vmi, error)
        if vmi is not None:
            await self._release_instance(vmi)
        if error is not None:
            return RequeueAfter(_RETRY_SECONDS)
        return RequeueAfter(wait) if wait > 0 else DONE

    async def _own_instance(self, vm: JsonObject) -> JsonObject | None:
        """The VM's instance; one without an owner is adopted, somebody else's is not touched."""
        vmi = self._cluster.vmis.get(*meta.key(vm))
        if vmi is None or meta.is_controlled_by(vmi, vm):
            return vmi
        if meta.controller_of(vmi) is not None or meta.is_being_deleted(vmi) or meta.is_being_deleted(vm):
            return None
        new = deep_copy(vmi)
        owner = meta.new_controller_ref(vm, kinds.VIRTUAL_MACHINES)
        new["metadata"]["ownerReferences"] = [*meta.owner_references(vmi), owner]
        return await self._client.patch(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            meta.name(vmi),
            guarded_patch(vmi, new, ("metadata",)),
            meta.namespace(vmi),
            type="json",
        )

    async def _sync(self, key: Key, vm: JsonObject, vmi: JsonObject | None) -> tuple[SyncError | None, float]:
        """Brings the world in line with the VM; `vm` is changed where its status must remember something."""
        if meta.is_being_deleted(vm):
            return await self._finish(key, vm, vmi), 0.0
        if not meta.has_finalizer(vm, VM_FINALIZER):
            await self._set_finalizer(vm, present=True)
        if vmi is not None:
            await self._running.sync_generation(vm, vmi)
        error = await self._types.sync(vm)
        if error is not None:
            return error, 0.0
        error = await self._sync_data_volumes(vm)
        if error is not None or not self._may_run(vm):
            return error, 0.0
        decision = strategy.decide(vm, vmi, failures.remaining_seconds(vm, times.now()))
        error = await self._apply(key, vm, vmi, decision)
        if error is None and vmi is not None and not decision.stop:
            error = await self._running.sync(vm, vmi)
        return error, decision.wait_seconds

    async def _finish(self, key: Key, vm: JsonObject, vmi: JsonObject | None) -> SyncError | None:
        if vmi is not None and not meta.has_finalizer(vm, _ORPHAN):
            if not meta.is_being_deleted(vmi):
                return await self._stop(key, vm, vmi)
            return None
        if meta.has_finalizer(vm, VM_FINALIZER):
            await self._set_finalizer(vm, present=False)
        return None

    async def _set_finalizer(self, vm: JsonObject, *, present: bool) -> None:
        """Sets or removes the finalizer, in `vm` too.

        The patch is bound to the version that `vm` was read at. Without that the answer's version could
        cover writes that `vm` does not hold (a request to start, say), and writing its status with that
        version would undo them.
        """
        new = deep_copy(vm)
        (meta.add_finalizer if present else meta.remove_finalizer)(new, VM_FINALIZER)
        operations = [*same_version(vm), *guarded_patch(vm, new, ("metadata",))]
        patched = await self._patch(vm, operations)
        vm["metadata"] = patched["metadata"]

    async def _patch(self, vm: JsonObject, operations: list[JsonObject]) -> JsonObject:
        return await self._client.patch(
            kinds.VIRTUAL_MACHINES, meta.name(vm), operations, meta.namespace(vm), type="json"
        )

    async def _sync_data_volumes(self, vm: JsonObject) -> SyncError | None:
        if not get_list(vm, "spec", "dataVolumeTemplates"):
            return None
        if self._cluster.data_volumes is None:
            text = "Error encountered while creating DataVolumes: the cluster does not serve DataVolumes"
            return SyncError("FailedCreate", text)
        vmi = self._cluster.vmis.get(*meta.key(vm))
        if datavolumes.creates_immediately(vm) or strategy.is_set_to_start(vm, vmi):
            return await provisioner.create_missing(self._cluster, vm)
        return None

    def _may_run(self, vm: JsonObject) -> bool:
        if strategy.run_strategy(vm) == "Halted":
            return True
        namespace = meta.namespace(vm)
        if not get_list(vm, "spec", "dataVolumeTemplates"):
            return True
        if not datavolumes.creates_immediately(vm) and not strategy.is_set_to_start(
            vm, self._cluster.vmis.get(*meta.key(vm))
        ):
            return True
        claims = self._cluster.claims_of(namespace)
        return datavolumes.are_ready(vm, self._cluster.data_volumes_of(namespace), claims)

    async def _apply(
        self, key: Key, vm: JsonObject, vmi: JsonObject | None, decision: Decision
    ) -> SyncError | None:
        if decision.error:
            return SyncError("FailedCreate", decision.error)
        if decision.new_strategy:
            await self._patch(vm, _strategy_operations(vm, decision.new_strategy))
            return None
        if decision.stop and vmi is not None:
            if decision.rerun_after_stop:
                requests = get_list(vm, "status", "stateChangeRequests")
                vm["status"]["stateChangeRequests"] = [*requests, {"action": "Start"}]
            return await self._stop(key, vm, vmi)
        if decision.start:
            if meta.is_condition_true(vm, "ManualRecoveryRequired"):
                return None
            return await self._start(key, vm, is_receiver=decision.is_receiver)
        return None

    async def _stop(self, key: Key, vm: JsonObject, vmi: JsonObject) -> SyncError | None:
        try:
            with self._expected.deleting(key, meta.uid(vmi)):
                await self._client.delete(
                    kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(vmi), meta.namespace(vmi), uid=meta.uid(vmi)
                )
        except StatusError as error:
            if is_not_found(error):
                return None
            text = f"Error deleting virtual machine instance {meta.name(vmi)}: {error.message}"
            self._cluster.recorder.event(vm, "Warning", "FailedDelete", text)
            return SyncError("FailedDelete", error.message)
        text = f"Stopped the virtual machine by deleting the virtual machine instance {meta.uid(vmi)}"
        self._cluster.recorder.event(vm, "Normal", "SuccessfulDelete", text)
        conditions.drop(vm.setdefault("status", {}).setdefault("conditions", []), "RestartRequired")
        return None

    async def _start(self, key: Key, vm: JsonObject, *, is_receiver: bool) -> SyncError | None:
        conditions.drop(vm.setdefault("status", {}).setdefault("conditions", []), "RestartRequired")
        instance = starting.new_instance(vm, is_receiver=is_receiver)
        error = self._types.apply(vm, instance)
        if error is not None:
            self._cluster.recorder.event(vm, "Warning", "FailedCreate", _creation_failure(error.message))
            return error
        await self._store_revision(vm)
        try:
            with self._expected.creating(key):
                await self._client.create(kinds.VIRTUAL_MACHINE_INSTANCES, instance)
        except StatusError as failure:
            text = _creation_failure(failure.message)
            self._cluster.recorder.event(vm, "Warning", "FailedCreate", text)
            return SyncError("FailedCreate", failure.message)
        name = meta.name(vm)
        text = f"Started the virtual machine by creating the new virtual machine instance {name}"
        self._cluster.recorder.event(vm, "Normal", "SuccessfulCreate", text)
        return None

    async def _store_revision(self, vm: JsonObject) -> None:
        revision = starting.start_revision(vm)
        prefix = f"revision-start-vm-{meta.uid(vm)}-"
        for old in self._cluster.revisions.by_index("controller", meta.uid(vm)):
            name = meta.name(old)
            if name.startswith(prefix) and name != meta.name(revision):
                await self._delete_revision(old)
        try:
            await self._client.create(resources.CONTROLLER_REVISIONS, revision)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    async def _delete_revision(self, revision: JsonObject) -> None:
        try:
            await self._client.delete(
                resources.CONTROLLER_REVISIONS, meta.name(revision), meta.namespace(revision)
            )
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _update_status(
        self, key: Key, old: JsonObject, new: JsonObject, vmi: JsonObject | None, error: SyncError | None
    ) -> None:
        written = new.setdefault("status", {})
        chosen = get_str(new, "spec", "runStrategy") or ("Always" if new["spec"].get("running") else "Halted")
        _set_or_drop(written, "created", vmi is not None)
        _set_or_drop(written, "ready", vmi is not None and meta.is_condition_true(vmi, "Ready"))
        if vmi is not None or "runStrategy" in written:
            written["runStrategy"] = chosen
        self._set_generations(new, written, vmi)
        written["conditions"] = status.mirrored_conditions(get_list(written, "conditions"), vmi, error)
        _set_or_drop(written, "startFailure", failures.next_failure(new, vmi, chosen, times.now()))
        _set_or_drop(written, "stateChangeRequests", await open_requests(self._client, new, vmi))
        _set_or_drop(written, "volumeSnapshotStatuses", self._snapshot_statuses(new))
        written["printableStatus"] = self._printable(key, new, vmi)
        if old.get("status") == written:
            return
        new["metadata"] = {**new["metadata"], "resourceVersion": new["metadata"]["resourceVersion"]}
        try:
            await self._client.update(kinds.VIRTUAL_MACHINES, new, subresource="status")
        except StatusError as failure:
            if not is_not_found(failure):
                raise

    def _set_generations(self, vm: JsonObject, written: JsonObject, vmi: JsonObject | None) -> None:
        if vmi is None:
            if "observedGeneration" in written:
                # Nothing runs an older generation: clients that wait for a condition wait for this one, too.
                written["observedGeneration"] = written["desiredGeneration"] = meta.generation(vm)
            return
        observed = meta.annotations(vmi).get(starting.GENERATION_ANNOTATION, "")
        number = int(observed) if observed.isdigit() else None
        if number is None:
            name = get_str(vmi, "status", "virtualMachineRevisionName")
            number = starting.generation_of_revision(name)
        if number is not None:
            written["observedGeneration"] = number
        written["desiredGeneration"] = meta.generation(vm)

    def _snapshot_statuses(self, vm: JsonObject) -> list[JsonObject]:
        classes = self._cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
        storage = self._cluster.informer(resources.STORAGE_CLASSES)
        return snapshots.volume_snapshot_statuses(
            vm,
            self._cluster.claims_of(meta.namespace(vm)),
            {meta.name(item): item for item in storage.list()},
            classes.list() if classes else [],
        )

    def _printable(self, key: Key, vm: JsonObject, vmi: JsonObject | None) -> str:
        is_waiting = not self._expected.satisfied(key)
        view = View(
            vm=vm,
            vmi=vmi,
            claims=self._cluster.claims_of(key[0]),
            data_volumes=self._cluster.data_volumes_of(key[0]),
            expects_creation=vmi is None and is_waiting and not meta.is_being_deleted(vm),
            expects_deletion=vmi is not None and is_waiting,
        )
        try:
            return status.printable_status(view)
        except strategy.StrategyError:
            return "Unknown"

    async def _release_instance(self, vmi: JsonObject) -> None:
        """Lets an ended instance go, after its last state has been written into the VM."""
        is_abandoned = phase_of(vmi) == "WaitingForSync" and meta.is_being_deleted(vmi)
        if not meta.has_finalizer(vmi, VM_FINALIZER) or not (is_final(vmi) or is_abandoned):
            return
        new = deep_copy(vmi)
        meta.remove_finalizer(new, VM_FINALIZER)
        operations = guarded_patch(vmi, new, ("metadata",))
        try:
            await patch_instance(self._client, vmi, operations)
        except StatusError as error:
            if not is_not_found(error):
                raise


def _strategy_operations(vm: JsonObject, new_strategy: str) -> list[JsonObject]:
    new = deep_copy(vm)
    if get_str(vm, "spec", "runStrategy"):
        new["spec"]["runStrategy"] = new_strategy
    else:
        new["spec"]["running"] = new_strategy == "Always"
    return guarded_patch(vm, new, ("spec",))


def _set_or_drop(document: JsonObject, key: str, value: object) -> None:
    if value:
        document[key] = value
    else:
        document.pop(key, None)


def _creation_failure(message: str) -> str:
    return f"Error creating virtual machine instance: {message}"
