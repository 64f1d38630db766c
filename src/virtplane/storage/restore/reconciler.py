"""The controller of restores."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta, times
from kubecore.patch.guarded import guarded_patch, same_object, same_version
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.storage.restore import decisions
from virtplane.storage.snapshot.decisions import set_progress

_KIND = kinds.VIRTUAL_MACHINE_RESTORES
_RETRY_SECONDS = 5.0


class _Waits(Exception):
    """The restore cannot go on yet; its text says why."""


class _Fails(Exception):
    """The restore cannot succeed any more; its text says why."""


class RestoreController:
    """Reconciles VirtualMachineRestores.

    Where the cluster serves no volume snapshots (any more), nothing is restored; what is deleted is let go.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._restores = cluster.informer(_KIND)
        self._snapshots = cluster.informer(kinds.VIRTUAL_MACHINE_SNAPSHOTS)
        self._contents = cluster.informer(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS)
        self._volumes = cluster.optional(kinds.VOLUME_SNAPSHOTS)
        self.controller = Controller("virt-controller-vmrestore", self._reconcile, workers=2)
        self.controller.watch(self._restores)
        self.controller.watch(cluster.vms, self._machine_keys)
        self.controller.watch(cluster.claims, _claim_keys)
        for informer in (self._snapshots, self._contents, cluster.vmis):
            self.controller.depend(informer)
        if self._volumes is not None:
            self.controller.depend(self._volumes)
        self.controller.depend(cluster.informer(resources.STORAGE_CLASSES))

    def _machine_keys(self, vm: JsonObject) -> list[Key]:
        found = self._restores.list(meta.namespace(vm))
        return [meta.key(item) for item in found if decisions.target_name(item) == meta.name(vm)]

    async def _reconcile(self, key: Key) -> Result:
        restore = self._restores.get(*key)
        if restore is None:
            return DONE
        vm = self._cluster.vms.get(key[0], decisions.target_name(restore))
        known = meta.conditions(restore)
        is_over = get_object(restore, "status").get("complete") is True or conditions.has_status(
            known, "Failure", "True"
        )
        if meta.is_being_deleted(restore) or is_over:
            await self._unlock(restore, vm)
            if meta.is_being_deleted(restore):
                await self._set_finalizer(restore, present=False)
            return DONE
        if self._volumes is None:
            return DONE
        if not meta.has_finalizer(restore, decisions.FINALIZER):
            await self._set_finalizer(restore, present=True)
            return DONE
        new = deep_copy(restore)
        status = new.setdefault("status", {})
        status.setdefault("complete", False)
        try:
            await self._advance(new, vm)
        except _Waits as waiting:
            set_progress(status, ("True", str(waiting)), ("False", str(waiting)))
        except _Fails as failed:
            text = str(failed)
            set_progress(status, ("False", text), ("False", text))
            conditions.put(status["conditions"], conditions.new_condition("Failure", "True", text))
            self._cluster.recorder.event(restore, "Warning", "VirtualMachineRestoreError", text)
        await self._store(restore, new)
        return RequeueAfter(_RETRY_SECONDS)

    async def _advance(self, restore: JsonObject, vm: JsonObject | None) -> None:
        """One step: lock, claims, target, done. Raises _Waits or _Fails."""
        content = self._content(restore)
        try:
            items = decisions.volumes(restore, content)
        except decisions.UnsupportedPolicy as error:
            raise _Fails(str(error)) from error
        source = get_str(content, "spec", "source", "virtualMachine", "metadata", "uid")
        mark = decisions.restore_uid(restore)
        is_marked = vm is not None and meta.annotations(vm).get(decisions.LAST_RESTORE) == mark
        if vm is not None and not is_marked:
            if meta.uid(vm) != source and get_str(restore, "status", "restoreTime") == "":
                text = "restore source and restore target are different but restore target already exists"
                raise _Fails(text)
            await self._hold(restore, vm)
        if items:
            restore["status"]["restores"] = decisions.restores_of(items)
        await self._create_claims(restore, items)
        spec = decisions.restored_spec(content, items)
        if vm is None:
            await self._create_target(restore, content, spec)
            raise _Waits("Updating target spec")
        if not is_marked:
            await self._cluster.client.update(
                kinds.VIRTUAL_MACHINES, decisions.updated_target(restore, vm, spec)
            )
            raise _Waits("Updating target spec")
        _set_owner(restore, vm)
        status = restore["status"]
        status["complete"] = True
        status["restoreTime"] = times.now_rfc3339()
        text = "Operation complete"
        set_progress(status, ("False", text), ("True", text))
        event = f"Successfully completed VirtualMachineRestore {meta.name(restore)}"
        self._cluster.recorder.event(restore, "Normal", "VirtualMachineRestoreComplete", event)

    def _content(self, restore: JsonObject) -> JsonObject:
        name, namespace = get_str(restore, "spec", "virtualMachineSnapshotName"), meta.namespace(restore)
        snapshot = self._snapshots.get(namespace, name)
        if snapshot is None:
            raise _Waits(f"VMSnapshot {namespace}/{name} does not exist")
        if get_str(snapshot, "status", "phase") == "Failed":
            raise _Fails(f"VirtualMachineSnapshot {name} is failed and cannot be used")
        if get_object(snapshot, "status").get("readyToUse") is not True:
            raise _Waits(f"VirtualMachineSnapshot {name} is not ready to use")
        content = self._contents.get(
            namespace, get_str(snapshot, "status", "virtualMachineSnapshotContentName")
        )
        if content is None:
            raise _Waits(f"VirtualMachineSnapshotContent of {name} does not exist")
        return content

    async def _hold(self, restore: JsonObject, vm: JsonObject) -> None:
        """Waits until the target is off, as the restore's policy says, and marks it as being restored."""
        if self._cluster.vmis.get(*meta.key(vm)) is not None:
            await self._wait_for_stop(restore, vm)
        holder = get_object(vm, "status").get("restoreInProgress")
        if holder == meta.name(restore):
            return
        if holder or get_object(vm, "status").get("snapshotInProgress"):
            raise _Waits("Waiting for target to be ready")
        held = deep_copy(vm)
        held.setdefault("status", {})["restoreInProgress"] = meta.name(restore)
        # At this very version: a snapshot may be taking hold of the machine by another field.
        await self._patch_vm(vm, [*same_version(vm), *guarded_patch(vm, held, ("status",))])
        raise _Waits("Initializing VirtualMachineRestore")

    async def _wait_for_stop(self, restore: JsonObject, vm: JsonObject) -> None:
        policy = get_str(restore, "spec", "targetReadinessPolicy") or "WaitGracePeriod"
        age = (times.now() - times.parse_time(meta.creation_timestamp(restore))).total_seconds()
        text = "Waiting for target to be ready"
        if policy == "FailImmediate":
            raise _Fails("Restore target failed to be ready")
        if policy == "WaitGracePeriod" and age > decisions.GRACE_SECONDS:
            raise _Fails("Restore target failed to be ready within 5m0s")
        if policy == "StopTarget":
            path = f"{kinds.SUBRESOURCES_PATH}/namespaces/{meta.namespace(vm)}/virtualmachines"
            try:
                await self._cluster.client.request("PUT", f"{path}/{meta.name(vm)}/stop", body={})
            except StatusError as error:
                if error.code != 409:
                    raise
        self._cluster.recorder.event(restore, "Normal", "RestoreTargetNotReady", text)
        raise _Waits(text)

    async def _create_claims(self, restore: JsonObject, items: list[decisions.RestoredVolume]) -> None:
        claims, volumes = self._cluster.claims_of(meta.namespace(restore)), self._volumes
        missing = [item for item in items if item.claim not in claims]
        for item in missing:
            source = volumes.get(meta.namespace(restore), item.volume_snapshot) if volumes else None
            try:
                await self._cluster.client.create(
                    resources.PERSISTENT_VOLUME_CLAIMS, decisions.new_claim(restore, item, source)
                )
            except StatusError as error:
                if not is_already_exists(error):
                    raise
        if missing:
            raise _Waits("Creating new PVCs")
        late = frozenset(
            meta.name(item)
            for item in self._cluster.informer(resources.STORAGE_CLASSES).list()
            if get_str(item, "volumeBindingMode") == "WaitForFirstConsumer"
        )
        if not decisions.are_bound(items, claims, late):
            raise _Waits("Waiting for new PVCs")

    async def _create_target(self, restore: JsonObject, content: JsonObject, spec: JsonObject) -> None:
        try:
            target = decisions.new_target(restore, content, spec)
        except (ValueError, StatusError) as error:
            raise _Fails(f"cannot apply patches: {error}") from error
        try:
            await self._cluster.client.create(kinds.VIRTUAL_MACHINES, target)
        except StatusError as error:
            if error.code == 422:
                raise _Fails(error.message) from error
            if not is_already_exists(error):
                raise

    async def _unlock(self, restore: JsonObject, vm: JsonObject | None) -> None:
        if vm is None or get_object(vm, "status").get("restoreInProgress") != meta.name(restore):
            return
        path = "/status/restoreInProgress"
        operations: list[JsonObject] = [
            *same_object(vm),
            {"op": "test", "path": path, "value": meta.name(restore)},
            {"op": "remove", "path": path},
        ]
        await self._patch_vm(vm, operations)

    async def _patch_vm(self, vm: JsonObject, operations: list[JsonObject]) -> None:
        await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINES,
            meta.name(vm),
            operations,
            meta.namespace(vm),
            type="json",
            subresource="status",
        )

    async def _set_finalizer(self, restore: JsonObject, *, present: bool) -> None:
        new = deep_copy(restore)
        if present:
            meta.add_finalizer(new, decisions.FINALIZER)
        elif not meta.remove_finalizer(new, decisions.FINALIZER):
            return
        operations = guarded_patch(restore, new, ("metadata",))
        await self._cluster.client.patch(
            _KIND, meta.name(restore), operations, meta.namespace(restore), type="json"
        )

    async def _store(self, old: JsonObject, new: JsonObject) -> None:
        try:
            if meta.owner_references(old) != meta.owner_references(new):
                written = await self._cluster.client.update(_KIND, new)
                new["metadata"]["resourceVersion"] = meta.resource_version(written)
            if get_object(old, "status") != get_object(new, "status"):
                await self._cluster.client.update(_KIND, new, subresource="status")
        except StatusError as error:
            if not is_not_found(error):
                raise


def _set_owner(restore: JsonObject, vm: JsonObject) -> None:
    if any(get_str(item, "uid") == meta.uid(vm) for item in get_list(restore, "metadata", "ownerReferences")):
        return
    # A restore that a clone made is controlled by the clone already.
    refer = meta.new_owner_ref if meta.controller_of(restore) else meta.new_controller_ref
    owner = refer(vm, kinds.VIRTUAL_MACHINES)
    restore["metadata"]["ownerReferences"] = [*meta.owner_references(restore), owner]


def _claim_keys(claim: JsonObject) -> list[Key]:
    name = meta.annotations(claim).get(decisions.RESTORE_ANNOTATION)
    return [(meta.namespace(claim), name)] if name else []
