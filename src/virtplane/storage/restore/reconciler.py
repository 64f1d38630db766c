"""The controller of restores."""

from __future__ import annotations

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, encode, readable
from kubecore.patch.guarded import guarded_patch, same_version
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass, VolumeSnapshot
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import INVALID, AnyObject, as_written, finalizer_patch
from virtplane.storage.restore import decisions
from virtplane.storage.snapshot.decisions import set_progress
from virtplane.storage.snapshot.documents import (
    HeldMachine,
    held_machine,
    held_machines,
    hold_patch,
    release_patch,
    status_patch,
)

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

    def _machine_keys(self, vm: VirtualMachine) -> list[Key]:
        return [
            (restore.metadata.namespace, restore.metadata.name)
            for restore in readable(VirtualMachineRestore, self._restores.list(vm.metadata.namespace))
            if restore.spec.target.name == vm.metadata.name
        ]

    async def _reconcile(self, key: Key) -> Result:
        document = self._restores.get(*key)
        if document is None:
            return DONE
        try:
            restore = decode(VirtualMachineRestore, document)
        except UnfitDocument as error:
            return await self._leave_unfit(document, error)
        machine = held_machine(self._cluster.vms, key[0], restore.spec.target.name)
        metadata = restore.metadata
        is_over = restore.status.complete or is_true(restore.status.conditions, "Failure")
        if metadata.is_being_deleted or is_over:
            await self._unlock(metadata.name, machine)
            if metadata.is_being_deleted:
                await self._patch(metadata, finalizer_patch(metadata, decisions.FINALIZER, present=False))
            return DONE
        if self._volumes is None:
            return DONE
        adding = finalizer_patch(metadata, decisions.FINALIZER, present=True)
        if adding:
            await self._patch(metadata, adding)
            return DONE
        status = deep_copy(get_object(document, "status"))
        status.setdefault("complete", False)
        owners = meta.owner_references(document)
        try:
            await self._advance(restore, document, status, machine)
            owners = _owners(document, machine)
        except (_Waits, UnfitDocument) as waiting:
            set_progress(status, ("True", str(waiting)), ("False", str(waiting)))
        except _Fails as failed:
            text = str(failed)
            set_progress(status, ("False", text), ("False", text))
            conditions.put(status["conditions"], conditions.new_condition("Failure", "True", text))
            self._cluster.recorder.event(document, "Warning", "VirtualMachineRestoreError", text)
        await self._store(document, owners, status)
        return RequeueAfter(_RETRY_SECONDS)

    async def _leave_unfit(self, document: JsonObject, error: UnfitDocument) -> Result:
        """A restore that cannot be read is let go when it is deleted; else an event says why it waits."""
        metadata = decode(AnyObject, document).metadata
        if not metadata.is_being_deleted:
            self._cluster.recorder.event(document, "Warning", INVALID, str(error))
            return DONE
        for machine in held_machines(self._cluster.vms, metadata.namespace):
            await self._unlock(metadata.name, machine)
        await self._patch(metadata, finalizer_patch(metadata, decisions.FINALIZER, present=False))
        return DONE

    async def _advance(
        self,
        restore: VirtualMachineRestore,
        document: JsonObject,
        status: JsonObject,
        machine: HeldMachine | None,
    ) -> None:
        """One step: lock, claims, target, done. Raises _Waits, _Fails or UnfitDocument."""
        kept = self._content(restore)
        content = decode(VirtualMachineSnapshotContent, kept)
        source = content.spec.source.virtual_machine.metadata
        try:
            items = decisions.volumes(restore, content)
        except decisions.UnsupportedPolicy as error:
            raise _Fails(str(error)) from error
        mark = decisions.restore_uid(restore)
        is_marked = machine is not None and machine.metadata.annotations.get(decisions.LAST_RESTORE) == mark
        if machine is not None and not is_marked:
            if machine.metadata.uid != source.uid and not restore.status.restore_time:
                text = "restore source and restore target are different but restore target already exists"
                raise _Fails(text)
            await self._hold(restore, document, machine)
        if items:
            status["restores"] = decisions.restores_of(items)
        await self._create_claims(restore, items)
        spec = decisions.restored_spec(get_object(kept, "spec", "source", "virtualMachine", "spec"), items)
        if machine is None:
            await self._create_target(restore, source, spec)
            raise _Waits("Updating target spec")
        if not is_marked:
            written = await as_written(self._cluster, kinds.VIRTUAL_MACHINES, machine)
            target = decisions.updated_target(restore, written, spec)
            changes = [*same_version(written), *guarded_patch(written, target, ("metadata",), ("spec",))]
            await self._patch_vm(machine.metadata.name, machine.metadata.namespace, changes)
            raise _Waits("Updating target spec")
        status["complete"] = True
        status["restoreTime"] = times.now_rfc3339()
        text = "Operation complete"
        set_progress(status, ("False", text), ("True", text))
        event = f"Successfully completed VirtualMachineRestore {restore.metadata.name}"
        self._cluster.recorder.event(document, "Normal", "VirtualMachineRestoreComplete", event)

    def _content(self, restore: VirtualMachineRestore) -> JsonObject:
        """The document of the content: the machine is made of it, not of what its struct knows."""
        name, namespace = restore.spec.virtual_machine_snapshot_name, restore.metadata.namespace
        found = self._snapshots.get(namespace, name)
        if found is None:
            raise _Waits(f"VMSnapshot {namespace}/{name} does not exist")
        snapshot = decode(VirtualMachineSnapshot, found)
        if snapshot.status.phase == "Failed":
            raise _Fails(f"VirtualMachineSnapshot {name} is failed and cannot be used")
        if not snapshot.status.ready_to_use:
            raise _Waits(f"VirtualMachineSnapshot {name} is not ready to use")
        content = self._contents.get(namespace, snapshot.status.virtual_machine_snapshot_content_name or "")
        if content is None:
            raise _Waits(f"VirtualMachineSnapshotContent of {name} does not exist")
        return content

    async def _hold(self, restore: VirtualMachineRestore, document: JsonObject, machine: HeldMachine) -> None:
        """Waits until the target is off, as the restore's policy says, and marks it as being restored."""
        name, namespace = machine.metadata.name, machine.metadata.namespace
        if self._cluster.vmis.contains(namespace, name):
            await self._wait_for_stop(restore, document)
        holders = machine.holders
        if holders.restore_in_progress == restore.metadata.name:
            return
        if holders.restore_in_progress or holders.snapshot_in_progress:
            raise _Waits("Waiting for target to be ready")
        operations = hold_patch(machine, replace(holders, restore_in_progress=restore.metadata.name))
        await self._patch_vm(name, namespace, operations, "status")
        raise _Waits("Initializing VirtualMachineRestore")

    async def _wait_for_stop(self, restore: VirtualMachineRestore, document: JsonObject) -> None:
        policy = restore.spec.target_readiness_policy or "WaitGracePeriod"
        created = times.parse_time(restore.metadata.creation_timestamp or "")
        age = (times.now() - created).total_seconds()
        text = "Waiting for target to be ready"
        if policy == "FailImmediate":
            raise _Fails("Restore target failed to be ready")
        if policy == "WaitGracePeriod" and age > decisions.GRACE_SECONDS:
            raise _Fails("Restore target failed to be ready within 5m0s")
        if policy == "StopTarget":
            path = f"{kinds.SUBRESOURCES_PATH}/namespaces/{restore.metadata.namespace}/virtualmachines"
            try:
                await self._cluster.client.request("PUT", f"{path}/{restore.spec.target.name}/stop", body={})
            except StatusError as error:
                if error.code != 409:
                    raise
        self._cluster.recorder.event(document, "Normal", "RestoreTargetNotReady", text)
        raise _Waits(text)

    async def _create_claims(
        self, restore: VirtualMachineRestore, items: list[decisions.RestoredVolume]
    ) -> None:
        namespace, volumes = restore.metadata.namespace, self._volumes
        claims = self._cluster.claims_of(namespace)
        missing = [item for item in items if item.claim not in claims]
        for item in missing:
            found = volumes.get(namespace, item.volume_snapshot) if volumes else None
            source = decode(VolumeSnapshot, found) if found else None
            try:
                await self._cluster.client.create(
                    resources.PERSISTENT_VOLUME_CLAIMS, decisions.new_claim(restore, item, source)
                )
            except StatusError as error:
                if not is_already_exists(error):
                    raise
        if missing:
            raise _Waits("Creating new PVCs")
        restored = {item.claim: decode(PersistentVolumeClaim, claims[item.claim]) for item in items}
        if not decisions.are_bound(items, restored, self._late_classes()):
            raise _Waits("Waiting for new PVCs")

    def _late_classes(self) -> frozenset[str]:
        """The storage classes whose claims are bound when they are first used."""
        classes = self._cluster.informer(resources.STORAGE_CLASSES).list()
        return frozenset(
            item.metadata.name
            for item in readable(StorageClass, classes)
            if item.volume_binding_mode == "WaitForFirstConsumer"
        )

    async def _create_target(
        self, restore: VirtualMachineRestore, source: ObjectMeta, spec: JsonObject
    ) -> None:
        try:
            target = decisions.new_target(restore, source, spec)
        except (ValueError, StatusError) as error:
            raise _Fails(f"cannot apply patches: {error}") from error
        try:
            await self._cluster.client.create(kinds.VIRTUAL_MACHINES, target)
        except StatusError as error:
            if error.code == 422:
                raise _Fails(error.message) from error
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

    async def _patch(
        self, metadata: ObjectMeta, operations: list[JsonObject], subresource: str | None = None
    ) -> None:
        if operations:
            await self._cluster.client.patch(
                _KIND, metadata.name, operations, metadata.namespace, type="json", subresource=subresource
            )

    async def _store(self, document: JsonObject, owners: list[JsonObject], status: JsonObject) -> None:
        metadata = decode(AnyObject, document).metadata
        owned = {"metadata": {**meta.metadata(document), "ownerReferences": owners}}
        try:
            if owners != meta.owner_references(document):
                await self._patch(metadata, guarded_patch(document, owned, ("metadata",)))
            await self._patch(metadata, status_patch(document, status), "status")
        except StatusError as error:
            if not is_not_found(error):
                raise


def _owners(document: JsonObject, machine: HeldMachine | None) -> list[JsonObject]:
    """The owners of a restore whose machine is there: that is one of them."""
    owners = meta.owner_references(document)
    vm = {"metadata": encode(machine.metadata)} if machine is not None else None
    if vm is None or meta.is_owned_by(document, vm):
        return owners
    # A restore that a clone made is controlled by the clone already.
    refer = meta.new_owner_ref if meta.controller_of(document) else meta.new_controller_ref
    return [*owners, refer(vm, kinds.VIRTUAL_MACHINES)]


def _claim_keys(claim: JsonObject) -> list[Key]:
    name = meta.annotations(claim).get(decisions.RESTORE_ANNOTATION)
    return [(meta.namespace(claim), name)] if name else []
