"""The controller of restores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_conflict, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, encode, part
from kubecore.patch.guarded import guarded_patch, same_version
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.meta_v1 import ObjectMeta, OwnerReference
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore, VirtualMachineRestoreStatus
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshotContent
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.cluster.deadlines import ABANDONED_SECONDS, Patience, until_deadline
from virtplane.cluster.objects import (
    INVALID,
    AnyObject,
    as_written,
    condition_documents,
    described,
    finalizer_patch,
    owners_patch,
    patch,
    status_patch,
)
from virtplane.storage.restore import claims, datavolumes, decisions, state
from virtplane.storage.restore.outcomes import Errs, Fails, Waits, WaitsForStop
from virtplane.storage.snapshot.decisions import set_progress
from virtplane.storage.snapshot.documents import (
    HeldMachine,
    held_machine,
    held_machines,
    hold_patch,
    release_patch,
)

_KIND = kinds.VIRTUAL_MACHINE_RESTORES
_RETRY_SECONDS = 5.0
_STOPPING = "Automatically stopping restore target for restore operation"
_PLEASE_STOP = (
    "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore"
)
_OR_FAIL = "or the operation will fail after 5m0s"
_TOO_LATE = (
    "Restore target failed to be ready within 5m0s. Please power off the target VM before attempting restore"
)


class RestoreController:
    """Reconciles VirtualMachineRestores.

    Where the cluster serves no volume snapshots (any more), nothing is restored; what is deleted is let go.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._patience = Patience(ABANDONED_SECONDS)
        self._restores = cluster.restores
        self._snapshots = cluster.snapshots
        self._contents = cluster.snapshot_contents
        self._volumes = cluster.optional(kinds.VOLUME_SNAPSHOTS)
        self.controller = Controller("virt-controller-restore-vmrestore", self._reconcile, workers=2)
        self.controller.watch(self._restores)
        self.controller.watch(cluster.vms, self._machine_keys)
        self.controller.watch(cluster.claims, _claim_keys)
        if cluster.data_volumes is not None:
            self.controller.watch(cluster.data_volumes, _claim_keys)
        for informer in (self._snapshots, self._contents, cluster.vmis):
            self.controller.depend(informer)
        if self._volumes is not None:
            self.controller.depend(self._volumes)
        self.controller.depend(cluster.informer(resources.STORAGE_CLASSES))

    def _machine_keys(self, vm: VirtualMachine) -> list[Key]:
        namespace = vm.metadata.namespace
        of_it = [
            restore.metadata.name
            for restore in self._restores.list(namespace)
            if restore.spec.target.name == vm.metadata.name
        ]
        # A restore that it is locked for may be gone: then the key is that of what unlocks it.
        holder = vm.observed.restore_in_progress
        abandoned = [holder] if holder and holder not in of_it else []
        return [(namespace, name) for name in (*of_it, *abandoned)]

    async def _reconcile(self, key: Key) -> Result:
        try:
            restore = self._restores.get(*key)
        except UnfitDocument as error:
            return await self._leave_unfit(error)
        if restore is None:
            return await self._release_abandoned(*key)
        machine = held_machine(self._cluster.vms, key[0], restore.spec.target.name)
        metadata = restore.metadata
        is_over = restore.status.complete or is_true(restore.status.conditions, "Failure")
        if metadata.is_being_deleted or is_over:
            with until_deadline(restore, self._cluster.recorder, "unlocking its machine"):
                await self._unlock(metadata.name, machine)  # which is done without it, too
            if metadata.is_being_deleted:
                removing = finalizer_patch(metadata, decisions.FINALIZER, present=False)
                await patch(self._cluster, _KIND, restore, removing, must_exist=True)
            return DONE
        if self._volumes is None:
            return DONE
        adding = finalizer_patch(metadata, decisions.FINALIZER, present=True)
        if adding:
            await patch(self._cluster, _KIND, restore, adding, must_exist=True)
            return DONE
        status: JsonObject = {"complete": False, **encode(restore.status)}
        status["conditions"] = condition_documents(restore.status.conditions)
        owners = restore.metadata.owner_references
        try:
            await self._advance(restore, status, machine)
            owners = claims.with_owner(restore.metadata, machine)
        except WaitsForStop as waiting:
            set_progress(status, ("False", str(waiting)), ("False", str(waiting)))
        except (Waits, UnfitDocument) as waiting:
            set_progress(status, ("True", str(waiting)), ("False", str(waiting)))
        except Errs as error:
            self._tell_of_error(restore, status, str(error))
        except StatusError as error:
            if is_conflict(error):
                raise
            self._tell_of_error(restore, status, str(error))
        except Fails as failed:
            text = str(failed)
            set_progress(status, ("False", text), ("False", text))
            conditions.put(status["conditions"], conditions.new_condition("Failure", "True", text))
            self._cluster.recorder.event(described(restore), "Warning", "VirtualMachineRestoreError", text)
        await self._store(restore, owners, status)
        return RequeueAfter(_RETRY_SECONDS)

    async def _release_abandoned(self, namespace: str, name: str) -> Result:
        """Unlock the machines that have been locked for a while for a restore that is gone."""
        machines = held_machines(self._cluster.vms, namespace)
        locked = [machine for machine in machines if machine.holders.restore_in_progress == name]
        if not locked:
            self._patience.forget((namespace, name))
            return DONE
        left = self._patience.left((namespace, name), asyncio.get_running_loop().time())
        if left:
            return RequeueAfter(left)
        try:
            # The caches of machines and restores are not of the same moment.
            await self._cluster.client.get(_KIND, name, namespace)
        except StatusError as error:
            if not is_not_found(error):
                raise
            for machine in locked:
                await self._unlock(name, machine)
        self._patience.forget((namespace, name))
        return DONE

    def _tell_of_error(self, restore: VirtualMachineRestore, status: JsonObject, text: str) -> None:
        """Write an error into the status, and send an event where it is news."""
        set_progress(status, ("False", text), ("False", text))
        if all(condition.reason != text for condition in restore.status.conditions):
            event = f"VirtualMachineRestore encountered error {text}"
            self._cluster.recorder.event(described(restore), "Warning", "VirtualMachineRestoreError", event)

    async def _leave_unfit(self, error: UnfitDocument) -> Result:
        """Handle a restore that cannot be decoded: remove its finalizer if it is deleted, else record an
        event.
        """
        restore = decode(AnyObject, error.document)
        metadata = restore.metadata
        if not metadata.is_being_deleted:
            self._cluster.recorder.event(dict(error.document), "Warning", INVALID, str(error))
            return DONE
        for machine in held_machines(self._cluster.vms, metadata.namespace):
            await self._unlock(metadata.name, machine)
        removing = finalizer_patch(metadata, decisions.FINALIZER, present=False)
        await patch(self._cluster, _KIND, restore, removing, must_exist=True)
        return DONE

    async def _advance(
        self,
        restore: VirtualMachineRestore,
        status: JsonObject,
        machine: HeldMachine | None,
    ) -> None:
        """One step: lock, claims, target, done. Raises Waits, Errs, Fails, StatusError, UnfitDocument."""
        content = self._content(restore)
        source = content.spec.source.virtual_machine.metadata
        items = decisions.volumes(restore, content)
        mark = decisions.restore_uid(restore)
        is_marked = machine is not None and machine.metadata.annotations.get(decisions.LAST_RESTORE) == mark
        if machine is not None and not is_marked:
            if machine.metadata.uid != source.uid and not restore.status.restore_time:
                text = "restore source and restore target are different but restore target already exists"
                raise Errs(text)
            await self._hold(restore, machine)
        if items:
            status["restores"] = decisions.restores_of(items)
        if decisions.is_in_place(restore):
            await claims.make_room(self._cluster, restore, items, status)
        await claims.create(self._cluster, restore, content, items)
        kept = state.state_of(items, source.name)
        if kept is not None and not is_marked:
            namespace = restore.metadata.namespace
            if await state.hand_over(self._cluster, namespace, kept.claim, restore.spec.target.name):
                raise Waits("Updating target spec")
        if machine is None:
            await self._create_target(restore, source, await self._restored_spec(content, items))
            raise Waits("Updating target spec")
        if not is_marked:
            spec = await self._restored_spec(content, items)
            raise Waits(await self._rewrite(restore, status, machine, spec))
        await self._complete(restore, status, source, machine, items)

    async def _rewrite(
        self,
        restore: VirtualMachineRestore,
        status: JsonObject,
        machine: HeldMachine,
        spec: JsonObject,
    ) -> str:
        """Give a machine the restored spec; returns what the restore waits for then."""
        written = await as_written(self._cluster, kinds.VIRTUAL_MACHINES, machine)
        deleted = datavolumes.replaced(written.get("spec", {}), spec)
        if list(restore.status.deleted_data_volumes) != deleted:
            # Written down before the machine forgets them.
            status["deletedDataVolumes"] = deleted
            return "Updating target status"
        target = decisions.updated_target(restore, written, spec)
        changes = [*same_version(written), *guarded_patch(written, target, ("metadata",), ("spec",))]
        await self._patch_vm(machine.metadata.name, machine.metadata.namespace, changes)
        return "Updating target spec"

    async def _complete(
        self,
        restore: VirtualMachineRestore,
        status: JsonObject,
        source: ObjectMeta,
        machine: HeldMachine,
        items: list[decisions.RestoredVolume],
    ) -> None:
        """Give the restored machine its disks, drop what they replace, and say that the restore is done.

        Raises Waits, StatusError, UnfitDocument.
        """
        target = await as_written(self._cluster, kinds.VIRTUAL_MACHINES, machine)
        needed = datavolumes.wanted(target, restore.metadata.name, items)
        if not await datavolumes.provide(self._cluster, needed):
            raise Waits("Waiting for target DataVolumes to be restored")
        await claims.give(self._cluster, restore, items, source, machine)
        await datavolumes.drop(self._cluster, target, restore.status.deleted_data_volumes)
        await state.drop_replaced(self._cluster, restore.metadata.namespace, restore.spec.target.name)
        status["complete"] = True
        status["restoreTime"] = times.now_rfc3339()
        text = "Operation complete"
        set_progress(status, ("False", text), ("True", text))
        event = f"Successfully completed VirtualMachineRestore {restore.metadata.name}"
        self._cluster.recorder.event(described(restore), "Normal", "VirtualMachineRestoreComplete", event)

    async def _restored_spec(
        self, content: VirtualMachineSnapshotContent, items: list[decisions.RestoredVolume]
    ) -> JsonObject:
        """The machine's spec, made of the content as it was written, not of what its struct knows."""
        written = await as_written(self._cluster, kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, content)
        struct = VirtualMachineSnapshotContent
        kept = part(written, struct, lambda content: content.spec.source.virtual_machine.spec)
        return decisions.restored_spec(kept, items)

    def _content(self, restore: VirtualMachineRestore) -> VirtualMachineSnapshotContent:
        """The content to restore from. Raises Errs or UnfitDocument."""
        name, namespace = restore.spec.virtual_machine_snapshot_name, restore.metadata.namespace
        snapshot = self._snapshots.get(namespace, name)
        if snapshot is None:
            raise Errs(f"VMSnapshot {namespace}/{name} does not exist")
        if snapshot.status.phase == "Failed":
            raise Errs(f"VMSnapshot {namespace}/{name} failed and is invalid to use")
        if not snapshot.status.ready_to_use:
            raise Errs(f"VMSnapshot {namespace}/{name} not ready")
        content = self._contents.get(namespace, snapshot.status.virtual_machine_snapshot_content_name or "")
        if content is None:
            raise Errs(f"no snapshot content name in {namespace}/{name}")
        return content

    async def _hold(self, restore: VirtualMachineRestore, machine: HeldMachine) -> None:
        """Wait until the target is stopped, as the restore's policy says, and mark it as being restored."""
        name, namespace = machine.metadata.name, machine.metadata.namespace
        if self._cluster.vmis.contains(namespace, name):
            await self._wait_for_stop(restore)
        holders = machine.holders
        if holders.restore_in_progress == restore.metadata.name:
            return
        if holders.restore_in_progress or holders.snapshot_in_progress:
            raise Waits("Waiting for target to be ready")
        operations = hold_patch(machine, replace(holders, restore_in_progress=restore.metadata.name))
        await self._patch_vm(name, namespace, operations, "status")
        raise Waits("Initializing VirtualMachineRestore")

    async def _wait_for_stop(self, restore: VirtualMachineRestore) -> None:
        policy = restore.spec.target_readiness_policy or "WaitGracePeriod"
        created = times.parse_time(restore.metadata.creation_timestamp or "")
        age = (times.now() - created).total_seconds()
        if policy == "FailImmediate":
            raise Fails("Restore target VMI must be powered off before restore operation")
        if policy == "WaitGracePeriod" and age > decisions.GRACE_SECONDS:
            raise Fails(_TOO_LATE)
        if policy == "StopTarget":
            self._tell_of_target(restore, _STOPPING)
            path = f"{kinds.SUBRESOURCES_PATH}/namespaces/{restore.metadata.namespace}/virtualmachines"
            try:
                await self._cluster.client.request("PUT", f"{path}/{restore.spec.target.name}/stop", body={})
            except StatusError as error:
                if error.code != 409:
                    raise
            raise WaitsForStop(_STOPPING)
        text = "Restore target VMI still exists, please stop the restore target to proceed with restore"
        self._tell_of_target(restore, text)
        raise WaitsForStop(_PLEASE_STOP if policy == "WaitEventually" else f"{_PLEASE_STOP}, {_OR_FAIL}")

    def _tell_of_target(self, restore: VirtualMachineRestore, text: str) -> None:
        self._cluster.recorder.event(described(restore), "Warning", "RestoreTargetNotReady", text)

    async def _create_target(
        self, restore: VirtualMachineRestore, source: ObjectMeta, spec: JsonObject
    ) -> None:
        try:
            target = decisions.new_target(restore, source, spec)
        except (ValueError, StatusError) as error:
            raise Fails(f"cannot apply patches: {error}") from error
        try:
            await self._cluster.client.create(kinds.VIRTUAL_MACHINES, target, restore.metadata.namespace)
        except StatusError as error:
            if error.code == 422:
                raise Fails(error.message) from error
            if not is_already_exists(error):
                raise

    async def _unlock(self, name: str, machine: HeldMachine | None) -> None:
        if machine is None or machine.holders.restore_in_progress != name:
            return
        operations = release_patch(machine, "restoreInProgress", name)
        await self._patch_vm(machine.metadata.name, machine.metadata.namespace, operations, "status")

    async def _patch_vm(
        self, name: str, namespace: str, operations: list[JsonObject], subresource: str | None = None
    ) -> None:
        await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINES, name, operations, namespace, type="json", subresource=subresource
        )

    async def _store(
        self, restore: VirtualMachineRestore, owners: Sequence[OwnerReference], status: JsonObject
    ) -> None:
        """Write owners and status, which holds at the version that the owners made. Raises StatusError."""
        of, client = restore.metadata, self._cluster.client
        try:
            owning = owners_patch(restore, owners)
            if owning:
                answer = await client.patch(_KIND, of.name, owning, of.namespace, type="json")
                restore = decode(VirtualMachineRestore, answer)
        except StatusError as error:
            if not is_not_found(error):
                raise
            return
        operations = status_patch(restore, VirtualMachineRestoreStatus, restore.status, status)
        await patch(self._cluster, _KIND, restore, operations, "status")


def _claim_keys(claim: JsonObject) -> list[Key]:
    name = meta.annotations(claim).get(wellknown.RESTORE_NAME)
    return [(meta.namespace(claim), name)] if name else []
