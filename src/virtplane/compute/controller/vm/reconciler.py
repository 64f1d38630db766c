"""The controller of virtual machines."""

from __future__ import annotations

import logging

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_lost_race, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.patch.guarded import same_version
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result, key_of
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster, HasMetadata, owner_key
from virtplane.cluster.objects import (
    INVALID,
    AnyObject,
    as_written,
    controller_reference,
    described,
    finalizer_patch,
    leave_unfit,
    owners_patch,
    patch,
)
from virtplane.compute.controller.vm import (
    datavolumes,
    draft,
    failures,
    instancetypes,
    memorydump,
    provisioner,
    reading,
    snapshots,
    starting,
    status,
    strategy,
    volumerequests,
)
from virtplane.compute.controller.vm.draft import Draft
from virtplane.compute.controller.vm.requests import open_requests
from virtplane.compute.controller.vm.running import RunningInstances
from virtplane.compute.controller.vm.starting import VM_FINALIZER
from virtplane.compute.controller.vm.status import SyncError, View
from virtplane.compute.controller.vm.strategy import Decision, is_final

logger = logging.getLogger(__name__)

_ORPHAN = "orphan"
_RETRY_SECONDS = 5.0
_VMS, _VMIS = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES


class VmController:
    """Reconciles VirtualMachines."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._types = instancetypes.InstancetypeSync(cluster)
        self._running = RunningInstances(cluster, self._types)
        self.controller = Controller("virt-controller-vm", self._reconcile, workers=4)
        self.controller.watch(cluster.vms)
        self.controller.watch(cluster.vmis)
        self.controller.watch(cluster.claims, self._claim_keys)
        self.controller.watch(cluster.revisions, owner_key("VirtualMachine"))
        if cluster.data_volumes is not None:
            self.controller.watch(cluster.data_volumes, self._data_volume_keys)
        for informer in (cluster.kubevirts, cluster.namespaces):
            self.controller.depend(informer)
        self.controller.watch(cluster.informer(resources.STORAGE_CLASSES), self._class_keys)
        snapshot_classes = cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
        if snapshot_classes is not None:
            self.controller.watch(snapshot_classes, self._class_keys)
        sources = cluster.optional(kinds.DATA_SOURCES)
        if sources is not None:
            self.controller.depend(sources)
        self._expected = Expectations(self.controller, cluster.vmis, owner_key("VirtualMachine"))

    def _claim_keys(self, claim: JsonObject) -> list[Key]:
        users = self._cluster.vms.by_index("claim", f"{meta.namespace(claim)}/{meta.name(claim)}")
        return [key_of(vm) for vm in users]

    def _class_keys(self, _: JsonObject) -> list[Key]:
        """Machines with disks that can be snapshotted now, or cannot any more."""
        return [
            key_of(vm) for vm in self._cluster.vms.list() if any(map(claim_name, vm.spec.instance.volumes))
        ]

    def _data_volume_keys(self, data_volume: JsonObject) -> list[Key]:
        return [*self._claim_keys(data_volume), *owner_key("VirtualMachine")(data_volume)]

    async def _reconcile(self, key: Key) -> Result:
        may_act = await self._expected.settled(key)  # observe the expectations before reading the caches
        try:
            vm = self._cluster.vms.get(*key)
        except UnfitDocument as unfit:
            await leave_unfit(self._cluster, _VMS, key, unfit, VM_FINALIZER)
            await self._release_of_unfit(key, decode(AnyObject, unfit.document))
            return DONE
        if vm is None:
            self._expected.forget(key)
            return DONE
        if await self._cluster.mark_observed(_VMS, vm, finalizer=VM_FINALIZER):
            return DONE
        work = draft.begin(vm)
        try:
            vmi = await self._own_instance(vm)
        except UnfitDocument as unfit:
            return await self._await_readable(key, work, unfit)
        error: SyncError | None = None
        wait = 0.0
        if may_act:
            try:
                error, wait = await self._sync(key, work, vmi)
            except StatusError as failure:
                if is_lost_race(failure):
                    raise
                error = SyncError("FailedUpdateError", failure.message)
            except strategy.StrategyError as failure:
                error = SyncError("FailedCreate", str(failure))
            except UnfitDocument as failure:
                error = SyncError(INVALID, str(failure))
        if error is not None:
            logger.info("syncing VM %s/%s failed: %s", *key, error.message)
        await self._update_status(key, work, vmi, error)
        if vmi is not None:
            await self._release_instance(vmi)
        if error is not None:
            return RequeueAfter(_RETRY_SECONDS)
        return RequeueAfter(wait) if wait > 0 else DONE

    async def _own_instance(self, vm: VirtualMachine) -> VirtualMachineInstance | None:
        """The VM's instance; one without an owner is adopted, one of another owner is left alone.

        Raises UnfitDocument, StatusError.
        """
        vmi = reading.instance(self._cluster, (vm.metadata.namespace, vm.metadata.name))
        if vmi is None or vmi.metadata.is_controlled_by(vm.metadata):
            return vmi
        is_going = vmi.metadata.is_being_deleted or vm.metadata.is_being_deleted
        if vmi.metadata.controller is not None or is_going:
            return None
        owners = [*vmi.metadata.owner_references, controller_reference(vm, _VMS)]
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        answer = await self._client.patch(_VMIS, name, owners_patch(vmi, owners), namespace, type="json")
        return decode(VirtualMachineInstance, answer)

    async def _await_readable(self, key: Key, work: Draft, unfit: UnfitDocument) -> Result:
        """An instance that cannot be read is there all the same: nothing is started or stopped in its place.

        The VM says why it waits. Where the VM is being deleted, its instance is deleted, readable or not.
        """
        logger.warning(
            "VM %s/%s waits, because its instance cannot be decoded; correct the instance: %s", *key, unfit
        )
        conditions.put(work.conditions, conditions.new_condition("Failure", "True", INVALID, str(unfit)))
        await patch(self._cluster, _VMS, work.vm, work.operations(), "status")
        if work.vm.metadata.is_being_deleted:
            await self._delete_unreadable(key, work.vm)
        return RequeueAfter(_RETRY_SECONDS)

    async def _delete_unreadable(self, key: Key, vm: VirtualMachine) -> None:
        """Delete the VM's instance. No expectation is set, because the cache does not show the instance."""
        try:
            found = decode(AnyObject, await self._client.get(_VMIS, key[1], key[0]))
            if found.metadata.is_controlled_by(vm.metadata) and not found.metadata.is_being_deleted:
                await self._client.delete(_VMIS, key[1], key[0], uid=found.metadata.uid)
        except StatusError as error:
            if not is_not_found(error):
                raise

    async def _sync(
        self, key: Key, work: Draft, vmi: VirtualMachineInstance | None
    ) -> tuple[SyncError | None, float]:
        """Reconcile the VM; the new status goes into the draft."""
        if work.vm.metadata.is_being_deleted:
            return await self._finish(key, work, vmi), 0.0
        await self._set_finalizer(work, present=True)
        if vmi is not None:
            await self._running.sync_generation(work.vm, vmi)
        error = await self._types.sync(work)
        if error is not None:
            return error, 0.0
        error = await volumerequests.fulfil(self._cluster, work, vmi)
        error = error or await memorydump.follow(self._cluster, work, vmi)
        error = error or await self._sync_data_volumes(work.vm)
        if error is not None or not self._may_run(work.vm):
            return error, 0.0
        decision = strategy.decide(work.vm, vmi, failures.remaining_seconds(work.vm, times.now()))
        error = await self._apply(key, work, vmi, decision)
        if error is None and vmi is not None and not decision.stop:
            error = await self._running.sync(work, vmi)
        return error, decision.wait_seconds

    async def _finish(self, key: Key, work: Draft, vmi: VirtualMachineInstance | None) -> SyncError | None:
        if vmi is not None and _ORPHAN not in work.vm.metadata.finalizers:
            return None if vmi.metadata.is_being_deleted else await self._stop(key, work, vmi)
        await self._set_finalizer(work, present=False)
        return None

    async def _set_finalizer(self, work: Draft, *, present: bool) -> None:
        """Sets or removes the finalizer, in the draft too.

        The patch is bound to the version that the VM was read at. Without that the answer's version could
        cover writes that the draft does not know (a request to start, say), and writing its status with that
        version would undo them.
        """
        operations = finalizer_patch(work.vm.metadata, VM_FINALIZER, present=present)
        if operations:
            answer = await self._patch(work.vm, [*same_version(described(work.vm)), *operations])
            work.vm = decode(VirtualMachine, answer)

    async def _patch(self, vm: VirtualMachine, operations: list[JsonObject]) -> JsonObject:
        return await self._client.patch(
            _VMS, vm.metadata.name, operations, vm.metadata.namespace, type="json"
        )

    def _is_set_to_start(self, vm: VirtualMachine) -> bool:
        key = vm.metadata.namespace, vm.metadata.name
        return strategy.is_set_to_start(vm, reading.instance(self._cluster, key))

    async def _sync_data_volumes(self, vm: VirtualMachine) -> SyncError | None:
        if not datavolumes.templates(vm):
            return None
        if self._cluster.data_volumes is None:
            text = "Error encountered while creating DataVolumes: the cluster does not serve DataVolumes"
            return SyncError("FailedCreate", text)
        if datavolumes.creates_immediately(vm) or self._is_set_to_start(vm):
            return await provisioner.create_missing(self._cluster, vm)
        return None

    def _may_run(self, vm: VirtualMachine) -> bool:
        if strategy.run_strategy(vm) == "Halted" or not datavolumes.templates(vm):
            return True
        if not datavolumes.creates_immediately(vm) and not self._is_set_to_start(vm):
            return True
        namespace, names = vm.metadata.namespace, reading.used_names(vm)
        made = reading.data_volumes(self._cluster, namespace, names)
        return datavolumes.are_ready(vm, made, reading.claims(self._cluster, namespace, names))

    async def _apply(
        self, key: Key, work: Draft, vmi: VirtualMachineInstance | None, decision: Decision
    ) -> SyncError | None:
        if decision.error:
            return SyncError("FailedCreate", decision.error)
        if decision.new_strategy:
            await self._patch(work.vm, strategy.new_strategy_patch(work.vm, decision.new_strategy))
            return None
        if decision.stop and vmi is not None:
            if decision.rerun_after_stop:
                requests = [encode(request) for request in work.vm.observed.state_change_requests]
                work.status["stateChangeRequests"] = [*requests, {"action": "Start"}]
            return await self._stop(key, work, vmi)
        if decision.start and not is_true(work.vm.observed.conditions, "ManualRecoveryRequired"):
            return await self._start(key, work, is_receiver=decision.is_receiver)
        return None

    async def _stop(self, key: Key, work: Draft, vmi: HasMetadata) -> SyncError | None:
        name, namespace, uid = vmi.metadata.name, vmi.metadata.namespace, vmi.metadata.uid
        try:
            with self._expected.deleting(key, uid):
                await self._client.delete(_VMIS, name, namespace, uid=uid)
        except StatusError as error:
            if is_not_found(error):
                return None
            text = f"Error deleting virtual machine instance {name}: {error.message}"
            self._cluster.recorder.event(described(work.vm), "Warning", "FailedDelete", text)
            return SyncError("FailedDelete", error.message)
        text = f"Stopped the virtual machine by deleting the virtual machine instance {uid}"
        self._cluster.recorder.event(described(work.vm), "Normal", "SuccessfulDelete", text)
        conditions.drop(work.conditions, "RestartRequired")
        return None

    async def _start(self, key: Key, work: Draft, *, is_receiver: bool) -> SyncError | None:
        vm, recorder = work.vm, self._cluster.recorder
        conditions.drop(work.conditions, "RestartRequired")
        written = await as_written(self._cluster, _VMS, vm)
        instance = starting.new_instance(vm, written, is_receiver=is_receiver)
        error = self._types.apply(work, instance)
        if error is not None:
            recorder.event(described(vm), "Warning", "FailedCreate", _creation_failure(error.message))
            return error
        await self._store_revision(vm, starting.start_revision(vm, written))
        try:
            with self._expected.creating(key):
                await self._client.create(_VMIS, instance)
        except StatusError as failure:
            recorder.event(described(vm), "Warning", "FailedCreate", _creation_failure(failure.message))
            return SyncError("FailedCreate", failure.message)
        name = vm.metadata.name
        text = f"Started the virtual machine by creating the new virtual machine instance {name}"
        recorder.event(described(vm), "Normal", "SuccessfulCreate", text)
        return None

    async def _store_revision(self, vm: VirtualMachine, revision: JsonObject) -> None:
        for old in self._cluster.revisions.by_index("controller", vm.metadata.uid):
            name = meta.name(old)
            if name.startswith(starting.revision_prefix(vm)) and name != meta.name(revision):
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
        self, key: Key, work: Draft, vmi: VirtualMachineInstance | None, error: SyncError | None
    ) -> None:
        vm, written = work.read(), work.status
        chosen = strategy.written_strategy(vm)
        names = reading.used_names(vm)
        claims = reading.claims(self._cluster, key[0], names)
        failure = failures.next_failure(vm, vmi, chosen, times.now())
        requests = await open_requests(self._client, vm, vmi)
        volumes = reading.volumes(self._cluster, vm)
        kept = reading.claims(self._cluster, key[0], map(claim_name, volumes))
        statuses = snapshots.volume_snapshot_statuses(
            volumes, kept, reading.storage_classes(self._cluster), reading.snapshot_classes(self._cluster)
        )
        if vmi is not None or "runStrategy" in written:
            written["runStrategy"] = chosen
        written["conditions"] = status.mirrored_conditions(work.conditions, vmi, error)
        for field, value in {
            "created": vmi is not None,
            "ready": vmi is not None and is_true(vmi.status.conditions, "Ready"),
            "startFailure": encode(failure) if failure is not None else None,
            "stateChangeRequests": [encode(request) for request in requests],
            "volumeSnapshotStatuses": statuses,
            **status.generations(vm, vmi),
        }.items():
            _set_or_drop(written, field, value)
        is_waiting = not self._expected.satisfied(key)
        view = View(
            vm=work.read(),
            vmi=vmi,
            claims=claims,
            data_volumes=reading.data_volumes(self._cluster, key[0], names),
            expects_creation=vmi is None and is_waiting and not vm.metadata.is_being_deleted,
            expects_deletion=vmi is not None and is_waiting,
        )
        try:
            written["printableStatus"] = status.printable_status(view)
        except strategy.StrategyError:
            written["printableStatus"] = "Unknown"
        await patch(self._cluster, _VMS, work.vm, work.operations(), "status")

    async def _release_of_unfit(self, key: Key, vm: AnyObject) -> None:
        """Let the deleted instance of a VM that cannot be decoded go: nothing can be written to its VM."""
        try:
            vmi = reading.instance(self._cluster, key)
        except UnfitDocument:
            return  # its own controller lets it go
        if vmi is not None and vmi.metadata.is_being_deleted and vmi.metadata.is_controlled_by(vm.metadata):
            await self._release_instance(vmi)

    async def _release_instance(self, vmi: VirtualMachineInstance) -> None:
        """Remove the finalizer of an ended instance after its last state was written to the VM."""
        is_abandoned = vmi.status.phase == "WaitingForSync" and vmi.metadata.is_being_deleted
        if is_final(vmi) or is_abandoned:
            removing = finalizer_patch(vmi.metadata, VM_FINALIZER, present=False)
            await patch(self._cluster, _VMIS, vmi, removing)


def _set_or_drop(document: JsonObject, key: str, value: object) -> None:
    if value:
        document[key] = value
    else:
        document.pop(key, None)


def _creation_failure(message: str) -> str:
    return f"Error creating virtual machine instance: {message}"
