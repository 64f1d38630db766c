"""The controller of snapshots and their contents."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, part, readable
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Informer, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.snapshot_v1beta1.snapshot import (
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotContentStatus,
    VirtualMachineSnapshotStatus,
)
from virtplane.api.storage_kinds import StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass
from virtplane.cluster.caches import Cluster, HasMetadata, owner_key
from virtplane.cluster.objects import (
    INVALID,
    AnyObject,
    Typed,
    any_object,
    as_written,
    described,
    finalizer_patch,
    patch,
    status_patch,
)
from virtplane.storage.snapshot import decisions
from virtplane.storage.snapshot.decisions import Observed
from virtplane.storage.snapshot.documents import (
    HeldMachine,
    held_machine,
    held_machines,
    hold_patch,
    release_patch,
)

_SNAPSHOTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS
_CONTENTS = kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS
_RETRY_SECONDS = 5.0


class SnapshotController:
    """Reconciles VirtualMachineSnapshots and VirtualMachineSnapshotContents.

    Where the cluster serves no volume snapshots (any more), nothing is taken, but what is deleted is let go.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._snapshots = cluster.snapshots
        self._contents = cluster.snapshot_contents
        self._volumes = cluster.optional(kinds.VOLUME_SNAPSHOTS)
        self._classes = cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
        self.controller = Controller("virt-controller-vmsnapshot", self._reconcile, workers=2)
        self.controller.watch(self._snapshots)
        self.controller.watch(self._contents, _snapshot_keys)
        self.controller.watch(cluster.vms, self._machine_keys)
        self.content_controller = Controller("virt-controller-vmsnapshotcontent", self._reconcile_content)
        self.content_controller.watch(self._contents)
        self.content_controller.watch(self._snapshots, _content_keys)
        if self._volumes is not None:
            self.content_controller.watch(self._volumes, owner_key(_CONTENTS.kind))
        if self._classes is not None:
            self.content_controller.depend(self._classes)
        for informer in (cluster.claims, cluster.informer(resources.STORAGE_CLASSES)):
            self.content_controller.depend(informer)
            self.controller.depend(informer)
        self.controller.depend(cluster.revisions)
        self.controller.depend(cluster.vmis)

    def _machine_keys(self, vm: VirtualMachine) -> list[Key]:
        return [
            (snapshot.metadata.namespace, snapshot.metadata.name)
            for snapshot in self._snapshots.list(vm.metadata.namespace)
            if snapshot.spec.source.name == vm.metadata.name
        ]

    async def _reconcile(self, key: Key) -> Result:
        try:
            snapshot = self._snapshots.get(*key)
        except UnfitDocument as error:
            return await self._leave_unfit(error)
        if snapshot is None:
            return DONE
        machine = held_machine(self._cluster.vms, key[0], snapshot.spec.source.name)
        if snapshot.metadata.is_being_deleted:
            return await self._finish(snapshot, machine)
        if self._volumes is None or self._classes is None:
            return DONE
        adding = finalizer_patch(snapshot.metadata, decisions.SNAPSHOT_FINALIZER, present=True)
        if adding:
            await patch(self._cluster, _SNAPSHOTS, snapshot, adding)
            return DONE
        if snapshot.status.phase in ("Succeeded", "Failed"):
            observed = self._observe(snapshot)
            # An object that cannot be decoded at the moment must not undo a finished snapshot.
            if not observed.problem:
                await self._update(snapshot, observed)
            await self._unlock(snapshot.metadata.name, machine)
            return DONE
        is_locked = machine is not None and await self._lock(snapshot, machine)
        observed = self._observe(snapshot)
        if is_locked and observed.vm and observed.content is None and not observed.problem:
            content = await self._create_content(snapshot, observed.vm, observed.vmi)
            observed = replace(observed, content=content)
        await self._update(snapshot, observed)
        return RequeueAfter(_RETRY_SECONDS)

    async def _leave_unfit(self, error: UnfitDocument) -> Result:
        """Handle a snapshot that cannot be decoded: remove its finalizer if it is deleted, else record an
        event.
        """
        snapshot = decode(AnyObject, error.document)
        of = snapshot.metadata
        if not of.is_being_deleted:
            self._cluster.recorder.event(dict(error.document), "Warning", INVALID, str(error))
            return DONE
        for machine in held_machines(self._cluster.vms, of.namespace):
            await self._unlock(of.name, machine)
        removing = finalizer_patch(of, decisions.SNAPSHOT_FINALIZER, present=False)
        await patch(self._cluster, _SNAPSHOTS, snapshot, removing)
        return DONE

    def _observe(self, snapshot: VirtualMachineSnapshot) -> Observed:
        """Read the snapshot's objects; an object that cannot be decoded is reported as a problem."""
        namespace, name = snapshot.metadata.namespace, snapshot.spec.source.name
        problems: list[str] = []
        vm = _get(self._cluster.vms, namespace, name, problems)
        is_there = self._cluster.vms.contains(namespace, name)
        vmi = _get(self._cluster.vmis, namespace, name, problems) if is_there else None
        return Observed(
            vm,
            vmi,
            _get(self._contents, namespace, decisions.content_name(snapshot.metadata.uid), problems),
            self._cluster.claims_of(namespace).keys(),
            "; ".join(problems),
        )

    async def _finish(self, snapshot: VirtualMachineSnapshot, machine: HeldMachine | None) -> Result:
        metadata = snapshot.metadata
        await self._unlock(metadata.name, machine)
        content = any_object(self._contents, metadata.namespace, decisions.content_name(metadata.uid))
        if content is not None and snapshot.spec.deletion_policy != "Retain":
            if not content.metadata.is_being_deleted:
                await self._delete(_CONTENTS, content.metadata)
            await self._release_content(content)
        removing = finalizer_patch(metadata, decisions.SNAPSHOT_FINALIZER, present=False)
        await patch(self._cluster, _SNAPSHOTS, snapshot, removing)
        return DONE

    async def _release_content(self, content: HasMetadata) -> None:
        removing = finalizer_patch(content.metadata, decisions.CONTENT_FINALIZER, present=False)
        await patch(self._cluster, _CONTENTS, content, removing)

    async def _lock(self, snapshot: VirtualMachineSnapshot, machine: HeldMachine) -> bool:
        """Lock the VM; returns False while another object holds the lock, or the cache does not show it
        yet.
        """
        name, held = snapshot.metadata.name, machine.holders
        holders = [holder for holder in (held.snapshot_in_progress, held.restore_in_progress) if holder]
        adding = finalizer_patch(machine.metadata, decisions.SOURCE_FINALIZER, present=True)
        if holders == [name] and not adding:
            return True
        if machine.metadata.is_being_deleted or any(holder != name for holder in holders):
            return False
        if not holders:
            operations = hold_patch(machine, changed(held, snapshot_in_progress=name))
            await patch(self._cluster, kinds.VIRTUAL_MACHINES, machine, operations, "status")
        else:
            await patch(self._cluster, kinds.VIRTUAL_MACHINES, machine, adding)
        return False

    async def _unlock(self, name: str, machine: HeldMachine | None) -> None:
        if machine is None or machine.holders.snapshot_in_progress != name:
            return
        removing = finalizer_patch(machine.metadata, decisions.SOURCE_FINALIZER, present=False)
        await patch(self._cluster, kinds.VIRTUAL_MACHINES, machine, removing)
        operations = release_patch(machine, "snapshotInProgress", name)
        await patch(self._cluster, kinds.VIRTUAL_MACHINES, machine, operations, "status")

    async def _create_content(
        self,
        snapshot: VirtualMachineSnapshot,
        vm: VirtualMachine,
        vmi: VirtualMachineInstance | None,
    ) -> VirtualMachineSnapshotContent:
        """Makes the content of the machine as it was written. Raises StatusError, UnfitDocument."""
        claims = self._cluster.claims_of(snapshot.metadata.namespace)
        volumes = decisions.choose_volumes(vm, claims)
        name = vmi.status.virtual_machine_revision_name if vmi is not None else None
        revision = self._cluster.revision(snapshot.metadata.namespace, name) if name else None
        started = get_object(revision, "data", "spec") if revision else None
        written = await as_written(self._cluster, kinds.VIRTUAL_MACHINES, vm)
        spec = decisions.running_spec(part(written, VirtualMachine, lambda vm: vm.spec), started)
        content = decisions.new_content(snapshot, vm, written, spec, volumes, claims)
        try:
            created = await self._cluster.client.create(_CONTENTS, content)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            created = await self._cluster.client.get(_CONTENTS, meta.name(content), vm.metadata.namespace)
            return decode(VirtualMachineSnapshotContent, created)
        text = f"Successfully created VirtualMachineSnapshotContent {meta.name(created)}"
        reason = "SuccessfulVirtualMachineSnapshotContentCreate"
        self._cluster.recorder.event(described(snapshot), "Normal", reason, text)
        return decode(VirtualMachineSnapshotContent, created)

    async def _update(self, snapshot: VirtualMachineSnapshot, observed: Observed) -> None:
        status = decisions.snapshot_status(snapshot, observed, times.now())
        operations = status_patch(snapshot, VirtualMachineSnapshotStatus, snapshot.status, status)
        await patch(self._cluster, _SNAPSHOTS, snapshot, operations, "status")

    async def _reconcile_content(self, key: Key) -> Result:
        try:
            content = self._contents.get(*key)
        except UnfitDocument as error:
            self._cluster.recorder.event(dict(error.document), "Warning", INVALID, str(error))
            return await self._release_unneeded(decode(AnyObject, error.document), "")
        if content is None:
            return DONE
        if content.metadata.is_being_deleted:
            name = content.spec.virtual_machine_snapshot_name or ""
            return await self._release_unneeded(content, name)
        if self._volumes is None or self._classes is None:
            return DONE
        found: dict[str, VolumeSnapshot] = {}
        problem = ""
        try:
            found = _snapshots_of(content, self._volumes.list(key[0]))
            if not content.status.creation_time:
                classes = self._classes.list()
                problem = await self._create_volume_snapshots(content, found, classes)
        except UnfitDocument as error:
            problem = str(error)
            self._cluster.recorder.event(described(content), "Warning", INVALID, problem)
            # An object that cannot be decoded at the moment must not undo a finished snapshot.
            if content.status.creation_time:
                return DONE
        status = decisions.content_status(content, found)
        if problem:
            status["error"] = {"time": times.now_rfc3339(), "message": problem}
            status.pop("creationTime", None)
            status["readyToUse"] = False
        struct = VirtualMachineSnapshotContentStatus
        if _without_time(decode(struct, status)) != _without_time(content.status):
            operations = status_patch(content, struct, content.status, status)
            await patch(self._cluster, _CONTENTS, content, operations, "status")
        return RequeueAfter(_RETRY_SECONDS) if problem else DONE

    async def _release_unneeded(self, content: HasMetadata, name: str) -> Result:
        """Remove the finalizer of a deleted content once its snapshot (`name`; empty if unknown) is deleted,
        too.
        """
        snapshot = any_object(self._snapshots, content.metadata.namespace, name)
        is_going = snapshot is None or snapshot.metadata.is_being_deleted
        if content.metadata.is_being_deleted and is_going:
            await self._release_content(content)
        return DONE

    async def _create_volume_snapshots(
        self,
        content: VirtualMachineSnapshotContent,
        found: dict[str, VolumeSnapshot],
        classes: list[JsonObject],
    ) -> str:
        """Create missing VolumeSnapshots, freezing a running guest that has an agent. Returns a problem, if
        any.
        """
        backups = content.spec.volume_backups
        missing = [backup for backup in backups if (backup.volume_snapshot_name or "") not in found]
        if not missing:
            await self._thaw_when_taken(content, found)
            return ""
        planned: list[JsonObject] = []
        for backup in missing:
            spec = backup.persistent_volume_claim.spec
            name = (spec.storage_class_name if spec else "") or ""
            chosen = decisions.snapshot_class(self._driver(name), readable(VolumeSnapshotClass, classes))
            if not chosen:
                return f"couldn't find VolumeSnapshotClass for {name}"
            planned.append(decisions.volume_snapshot(content, backup, chosen))
        await self._freeze(content, "freeze")
        for volume in planned:
            try:
                created = await self._cluster.client.create(kinds.VOLUME_SNAPSHOTS, volume)
            except StatusError as error:
                if not is_already_exists(error):  # created before, but not in the cache yet
                    raise
                continue
            found[meta.name(created)] = decode(VolumeSnapshot, created)
            text = f"Successfully created VolumeSnapshot {meta.name(created)}"
            reason = "SuccessfulVolumeSnapshotCreate"
            self._cluster.recorder.event(described(content), "Normal", reason, text)
        return ""

    def _driver(self, storage_class: str) -> str:
        found = self._cluster.informer(resources.STORAGE_CLASSES).get(None, storage_class)
        return decode(StorageClass, found).provisioner if found else ""

    async def _thaw_when_taken(
        self, content: VirtualMachineSnapshotContent, found: dict[str, VolumeSnapshot]
    ) -> None:
        names = [backup.volume_snapshot_name or "" for backup in content.spec.volume_backups]
        if names and all(name in found and found[name].status.creation_time for name in names):
            await self._freeze(content, "unfreeze")

    async def _freeze(self, content: VirtualMachineSnapshotContent, action: str) -> None:
        name = content.spec.source.virtual_machine.metadata.name
        vmi = self._cluster.vmis.get(content.metadata.namespace, name)
        if vmi is None:
            return
        if not is_true(vmi.status.conditions, "AgentConnected") or is_true(vmi.status.conditions, "Paused"):
            return
        base = f"{kinds.SUBRESOURCES_PATH}/namespaces/{vmi.metadata.namespace}/virtualmachineinstances"
        body = {"unfreezeTimeout": "5m0s"} if action == "freeze" else {}
        await self._cluster.client.request("PUT", f"{base}/{name}/{action}", body=body)

    async def _delete(self, kind: ResourceType, obj: ObjectMeta) -> None:
        try:
            await self._cluster.client.delete(kind, obj.name, obj.namespace)
        except StatusError as error:
            if not is_not_found(error):
                raise


def _snapshot_keys(content: VirtualMachineSnapshotContent) -> list[Key]:
    return [(content.metadata.namespace, content.spec.virtual_machine_snapshot_name or "")]


def _content_keys(snapshot: VirtualMachineSnapshot) -> list[Key]:
    return [(snapshot.metadata.namespace, decisions.content_name(snapshot.metadata.uid))]


def _snapshots_of(
    content: VirtualMachineSnapshotContent, volumes: list[JsonObject]
) -> dict[str, VolumeSnapshot]:
    names = {backup.volume_snapshot_name for backup in content.spec.volume_backups}
    return {meta.name(item): decode(VolumeSnapshot, item) for item in volumes if meta.name(item) in names}


def _get(informer: Informer[Typed], namespace: str, name: str, problems: list[str]) -> Typed | None:
    try:
        return informer.get(namespace, name)
    except UnfitDocument as error:
        problems.append(str(error))
        return None


def _without_time(status: VirtualMachineSnapshotContentStatus) -> VirtualMachineSnapshotContentStatus:
    """The status without the time of its error, which alone is no reason to write it."""
    return changed(status, error=changed(status.error, time=None)) if status.error is not None else status
