"""The controller of clones."""

from __future__ import annotations

from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, EventKind, Key, RequeueAfter, Result
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone, VirtualMachineCloneStatus
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.cluster.objects import (
    INVALID,
    condition_documents,
    described,
    leave_unfit,
    patch,
    status_patch,
)
from virtplane.storage.clone import decisions

_KIND = kinds.VIRTUAL_MACHINE_CLONES
_SNAPSHOTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS
_RESTORES = kinds.VIRTUAL_MACHINE_RESTORES
_RETRY_SECONDS = 5.0
_HAS_STATE = "Clone of source with backendstorage is not supported"


class CloneController:
    """Reconciles VirtualMachineClones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clones = cluster.clones
        self._snapshots = cluster.snapshots
        self._contents = cluster.snapshot_contents
        self._restores = cluster.restores
        self.controller = Controller("virt-controller-vmclone", self._reconcile, workers=2)
        self.controller.watch(self._clones)
        self.controller.watch(self._snapshots, owner_key(_KIND.kind))
        self.controller.watch(self._restores, owner_key(_KIND.kind))
        self.controller.watch(cluster.vms, self._machine_keys)
        self.controller.depend(self._contents)
        self.controller.watch(cluster.claims, self._claim_keys)

    def _machine_keys(self, vm: VirtualMachine) -> list[Key]:
        name = vm.metadata.name
        return [
            (clone.metadata.namespace, clone.metadata.name)
            for clone in self._clones.list(vm.metadata.namespace)
            if name in (clone.spec.source.name, decisions.target_name(clone))
        ]

    def _claim_keys(self, claim: JsonObject) -> list[Key]:
        restore = meta.annotations(claim).get(wellknown.RESTORE_NAME)
        return [
            (clone.metadata.namespace, clone.metadata.name)
            for clone in (self._clones.list(meta.namespace(claim)) if restore else ())
            if clone.status.restore_name == restore
        ]

    async def _reconcile(self, key: Key) -> Result:
        try:
            clone = self._clones.get(*key)
        except UnfitDocument as error:
            await leave_unfit(self._cluster, _KIND, key, error)
            return DONE
        if clone is None or clone.metadata.is_being_deleted:
            return DONE
        if clone.status.phase == "Failed":
            return DONE
        is_made = clone.status.phase == "Succeeded"
        if not is_made or clone.status.restore_name:
            await self._step(clone)
        if is_made:
            return await self._watch_target(clone)
        return RequeueAfter(_RETRY_SECONDS)

    async def _step(self, clone: VirtualMachineClone) -> None:
        """Go on as far as the clone can, and write how far that is. Raises StatusError."""
        status = encode(clone.status)
        status["conditions"] = condition_documents(clone.status.conditions)
        try:
            if clone.status.phase == "Succeeded":
                await self._drop_helpers(clone, status)
            else:
                await self._advance(clone, status)
        except UnfitDocument as error:
            self._event(clone, "Warning", INVALID, str(error))
        if not status["conditions"]:
            del status["conditions"]
        operations = status_patch(clone, VirtualMachineCloneStatus, clone.status, status)
        await patch(self._cluster, _KIND, clone, operations, "status", must_exist=True)

    async def _advance(self, clone: VirtualMachineClone, status: JsonObject) -> None:
        """Take one step. Raises UnfitDocument if an object that the clone depends on cannot be decoded."""
        namespace = clone.metadata.namespace
        snapshot = self._snapshots.get(namespace, decisions.snapshot_name(clone))
        if snapshot is None:
            await self._begin(clone, status)
            return
        if snapshot.status.phase == "Failed":
            decisions.set_phase(status, "Failed")
            return
        if not snapshot.status.ready_to_use:
            decisions.set_phase(status, "SnapshotInProgress")
            return
        restore = self._restores.get(namespace, decisions.restore_name(clone))
        if restore is None:
            await self._restore(clone, status, snapshot)
            return
        if is_true(restore.status.conditions, "Failure"):
            decisions.set_phase(status, "Failed")
        elif not restore.status.complete:
            decisions.set_phase(status, "RestoreInProgress")
        else:
            await self._complete(clone, status)

    async def _begin(self, clone: VirtualMachineClone, status: JsonObject) -> None:
        """Create the snapshot of a VM that can be copied."""
        source, namespace = clone.spec.source, clone.metadata.namespace
        is_machine = source.kind == "VirtualMachine"
        vm = self._cluster.vms.get(namespace, source.name) if is_machine else None
        if vm is None:
            text = f"Source doesnt exist: {source.kind} {namespace}/{source.name}"
            self._wait(clone, status, "SourceDoesNotExist", text)
            return
        if decisions.has_persistent_state(vm.spec):
            text = f"{_HAS_STATE}: VM {namespace}/{source.name}"
            self._fail(clone, status, "SourceVMWithBackendStorageInvalid", text)
            return
        problem = decisions.unsnapshottable(vm)
        if problem:
            self._wait(clone, status, "VMVolumeSnapshotsInvalid", problem)
            return
        created = await self._create(_SNAPSHOTS, decisions.new_snapshot(clone))
        status["snapshotName"] = decisions.snapshot_name(clone)
        decisions.set_phase(status, "SnapshotInProgress")
        if created:
            self._event(clone, "Normal", "SnapshotCreated", f"created snapshot {status['snapshotName']}")

    async def _restore(
        self, clone: VirtualMachineClone, status: JsonObject, snapshot: VirtualMachineSnapshot
    ) -> None:
        name = snapshot.status.virtual_machine_snapshot_content_name or ""
        content = self._contents.get(clone.metadata.namespace, name)
        if content is None:
            return
        source = content.spec.source.virtual_machine
        problem = decisions.missing_backups(content)
        if source.spec is not None and decisions.has_persistent_state(source.spec):
            problem = f"{_HAS_STATE}: snapshot {snapshot.metadata.namespace}/{snapshot.metadata.name}"
        if problem:
            self._fail(clone, status, "SnapshotContentInvalid", problem)
            return
        created = await self._create(_RESTORES, decisions.new_restore(clone, source))
        status["restoreName"] = decisions.restore_name(clone)
        decisions.set_phase(status, "RestoreInProgress")
        if created:
            text = f"snapshot {snapshot.metadata.name} is ready"
            self._event(clone, "Normal", "SnapshotReady", text)
            self._event(clone, "Normal", "RestoreCreated", f"created restore {status['restoreName']}")

    async def _complete(self, clone: VirtualMachineClone, status: JsonObject) -> None:
        """The copy is made once it is seen: its claims may still wait for their first consumer.

        Raises StatusError, UnfitDocument.
        """
        name = status["targetName"] = decisions.target_name(clone)
        if self._cluster.vms.get(clone.metadata.namespace, name) is None:
            decisions.set_phase(status, "CreatingTargetVM")
            return
        decisions.set_phase(status, "Succeeded")
        self._event(clone, "Normal", "TargetVMCreated", f"created target VM {name}")
        await self._drop_helpers(clone, status)

    async def _drop_helpers(self, clone: VirtualMachineClone, status: JsonObject) -> None:
        """Delete the restore and the clone's own snapshot once nothing is left to be made of them.

        Raises StatusError, UnfitDocument.
        """
        namespace = clone.metadata.namespace
        name = decisions.restore_name(clone)
        restore = self._restores.get(namespace, name)
        restored = {item.persistent_volume_claim for item in restore.status.restores} if restore else set()
        # Claims tell of a restore that is gone, too: without the snapshot they could not be filled any more.
        found = [
            decode(PersistentVolumeClaim, claim)
            for claim in self._cluster.claims.list(namespace)
            if meta.annotations(claim).get(wellknown.RESTORE_NAME) == name or meta.name(claim) in restored
        ]
        bound = {claim.metadata.name for claim in found if claim.status.phase == "Bound"}
        restored |= {claim.metadata.name for claim in found}
        if restored - bound:
            return  # the next change of a claim brings the clone back
        await self._delete(_RESTORES, namespace, name)
        if clone.spec.source.kind == "VirtualMachine":
            await self._delete(_SNAPSHOTS, namespace, decisions.snapshot_name(clone))
        for key in ("snapshotName", "restoreName"):
            status.pop(key, None)
        if restored:
            status["creationTime"] = times.now_rfc3339()
            self._event(clone, "Normal", "PVCBound", "all PVCs are bound")

    async def _watch_target(self, clone: VirtualMachineClone) -> Result:
        """Delete the clone when its target VM is deleted."""
        namespace, name = clone.metadata.namespace, clone.status.target_name or ""
        if (namespace, name) in self._cluster.vms.unfit:
            return RequeueAfter(_RETRY_SECONDS)  # no event reports the deletion of such a VM
        if self._cluster.vms.get(namespace, name) is None:
            try:
                await self._cluster.client.get(kinds.VIRTUAL_MACHINES, name, namespace)
            except StatusError as error:
                if not is_not_found(error):
                    raise
                await self._delete(_KIND, namespace, clone.metadata.name)
        return DONE

    def _wait(self, clone: VirtualMachineClone, status: JsonObject, reason: str, text: str) -> None:
        """Say what the clone waits for; an event tells it where it is news."""
        decisions.set_pending(status, text)
        if all(condition.reason != text for condition in clone.status.conditions):
            self._event(clone, "Normal", reason, text)

    def _fail(self, clone: VirtualMachineClone, status: JsonObject, reason: str, text: str) -> None:
        decisions.set_phase(status, "Failed", text)
        self._event(clone, "Normal", reason, text)

    def _event(self, clone: VirtualMachineClone, kind: EventKind, reason: str, text: str) -> None:
        self._cluster.recorder.event(described(clone), kind, reason, text)

    async def _create(self, kind: ResourceType, obj: JsonObject) -> bool:
        try:
            await self._cluster.client.create(kind, obj)
        except StatusError as error:
            if is_already_exists(error):
                return False
            raise
        return True

    async def _delete(self, kind: ResourceType, namespace: str, name: str) -> None:
        try:
            await self._cluster.client.delete(kind, name, namespace)
        except StatusError as error:
            if not is_not_found(error):
                raise
