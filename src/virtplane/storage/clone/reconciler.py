"""The controller of clones."""

from __future__ import annotations

from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta, times
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.storage.clone import decisions

_KIND = kinds.VIRTUAL_MACHINE_CLONES
_SNAPSHOTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS
_RESTORES = kinds.VIRTUAL_MACHINE_RESTORES
_RETRY_SECONDS = 5.0


class CloneController:
    """Reconciles VirtualMachineClones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clones = cluster.informer(_KIND)
        self._snapshots = cluster.informer(_SNAPSHOTS)
        self._contents = cluster.informer(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS)
        self._restores = cluster.informer(_RESTORES)
        self.controller = Controller("virt-controller-vmclone", self._reconcile, workers=2)
        self.controller.watch(self._clones)
        self.controller.watch(self._snapshots, owner_key(_KIND.kind))
        self.controller.watch(self._restores, owner_key(_KIND.kind))
        self.controller.watch(cluster.vms, self._machine_keys)
        self.controller.depend(self._contents)
        self.controller.depend(cluster.claims)

    def _machine_keys(self, vm: JsonObject) -> list[Key]:
        found = self._clones.list(meta.namespace(vm))
        names = (meta.name(vm),)
        return [
            meta.key(item)
            for item in found
            if get_str(item, "spec", "source", "name") in names or decisions.target_name(item) in names
        ]

    async def _reconcile(self, key: Key) -> Result:
        clone = self._clones.get(*key)
        if clone is None or meta.is_being_deleted(clone):
            return DONE
        phase = get_str(clone, "status", "phase")
        if phase == "Failed":
            return DONE
        if phase == "Succeeded":
            return await self._watch_target(clone)
        new = deep_copy(clone)
        status = new.setdefault("status", {})
        await self._advance(new, status)
        if status != get_object(clone, "status"):
            await self._cluster.client.update(_KIND, new, subresource="status")
        return RequeueAfter(_RETRY_SECONDS) if status.get("phase") != "Succeeded" else DONE

    async def _advance(self, clone: JsonObject, status: JsonObject) -> None:
        namespace = meta.namespace(clone)
        snapshot = self._snapshots.get(namespace, decisions.snapshot_name(clone))
        if snapshot is None:
            await self._begin(clone, status)
            return
        if get_str(snapshot, "status", "phase") == "Failed":
            decisions.set_phase(status, "Failed")
            return
        if get_object(snapshot, "status").get("readyToUse") is not True:
            decisions.set_phase(status, "SnapshotInProgress")
            return
        restore = self._restores.get(namespace, decisions.restore_name(clone))
        if restore is None:
            await self._restore(clone, status, snapshot)
        elif conditions.has_status(meta.conditions(restore), "Failure", "True"):
            decisions.set_phase(status, "Failed")
        elif get_object(restore, "status").get("complete") is not True:
            decisions.set_phase(status, "RestoreInProgress")
        else:
            await self._complete(clone, status, snapshot, restore)

    async def _begin(self, clone: JsonObject, status: JsonObject) -> None:
        """Makes the snapshot of a VM that can be copied."""
        name = get_str(clone, "spec", "source", "name")
        if decisions.source_kind(clone) != "VirtualMachine":
            self._event(clone, "Warning", "SourceDoesNotExist", f"Snapshot {name} does not exist")
            return
        vm = self._cluster.vms.get(meta.namespace(clone), name)
        if vm is None:
            text = f"VirtualMachine {meta.namespace(clone)}/{name} does not exist"
            self._event(clone, "Warning", "SourceDoesNotExist", text)
            return
        if decisions.has_persistent_state(vm):
            text = "Source VM has persistent TPM or EFI state, which cannot be cloned"
            self._event(clone, "Warning", "SourceVMWithBackendStorageInvalid", text)
            return
        created = await self._create(_SNAPSHOTS, decisions.new_snapshot(clone))
        status["snapshotName"] = decisions.snapshot_name(clone)
        decisions.set_phase(status, "SnapshotInProgress")
        if created:
            self._event(clone, "Normal", "SnapshotCreated", f"created snapshot {status['snapshotName']}")

    async def _restore(self, clone: JsonObject, status: JsonObject, snapshot: JsonObject) -> None:
        name = get_str(snapshot, "status", "virtualMachineSnapshotContentName")
        content = self._contents.get(meta.namespace(clone), name)
        if content is None:
            return
        source = get_object(content, "spec", "source", "virtualMachine")
        created = await self._create(_RESTORES, decisions.new_restore(clone, source))
        status["restoreName"] = decisions.restore_name(clone)
        decisions.set_phase(status, "RestoreInProgress")
        if created:
            self._event(clone, "Normal", "SnapshotReady", f"snapshot {meta.name(snapshot)} is ready")
            self._event(clone, "Normal", "RestoreCreated", f"created restore {status['restoreName']}")

    async def _complete(
        self, clone: JsonObject, status: JsonObject, snapshot: JsonObject, restore: JsonObject
    ) -> None:
        """The copy is there: once its claims are bound, the helpers go."""
        status["targetName"] = decisions.target_name(clone)
        claims = self._cluster.claims_of(meta.namespace(clone))
        restored = [get_str(item, "persistentVolumeClaim") for item in restore["status"].get("restores", [])]
        if any(get_str(claims.get(name), "status", "phase") != "Bound" for name in restored):
            decisions.set_phase(status, "CreatingTargetVM")
            return
        await self._delete(_RESTORES, restore)
        if decisions.source_kind(clone) == "VirtualMachine":
            await self._delete(_SNAPSHOTS, snapshot)
        for key in ("snapshotName", "restoreName"):
            status.pop(key, None)
        if restored:
            status["creationTime"] = times.now_rfc3339()
            self._event(clone, "Normal", "PVCBound", "all PVCs are bound")
        decisions.set_phase(status, "Succeeded")
        self._event(clone, "Normal", "TargetVMCreated", f"created target VM {status['targetName']}")

    async def _watch_target(self, clone: JsonObject) -> Result:
        """A clone goes with its copy."""
        name = get_str(clone, "status", "targetName")
        if self._cluster.vms.get(meta.namespace(clone), name) is None:
            try:
                await self._cluster.client.get(kinds.VIRTUAL_MACHINES, name, meta.namespace(clone))
            except StatusError as error:
                if not is_not_found(error):
                    raise
                await self._delete(_KIND, clone)
        return DONE

    def _event(self, clone: JsonObject, kind: str, reason: str, text: str) -> None:
        self._cluster.recorder.event(clone, "Warning" if kind == "Warning" else "Normal", reason, text)

    async def _create(self, kind: ResourceType, obj: JsonObject) -> bool:
        try:
            await self._cluster.client.create(kind, obj)
        except StatusError as error:
            if is_already_exists(error):
                return False
            raise
        return True

    async def _delete(self, kind: ResourceType, obj: JsonObject) -> None:
        try:
            await self._cluster.client.delete(kind, meta.name(obj), meta.namespace(obj))
        except StatusError as error:
            if not is_not_found(error):
                raise
