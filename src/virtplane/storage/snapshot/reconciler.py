"""The controller of snapshots; that of their contents is in `contents`."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from msgspec.structs import replace as changed

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import get_object
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, part
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Controller, Informer, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.snapshot_v1beta1.snapshot import (
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotStatus,
)
from virtplane.cluster.caches import Cluster, HasMetadata
from virtplane.cluster.deadlines import ABANDONED_SECONDS, Patience, until_deadline
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
from virtplane.storage.snapshot import decisions, sources
from virtplane.storage.snapshot.decisions import Observed
from virtplane.storage.snapshot.documents import (
    HeldMachine,
    held_machine,
    held_machines,
    hold_patch,
    release_patch,
)
from virtplane.storage.snapshot.freezes import Freezes

_log = logging.getLogger(__name__)
_SNAPSHOTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS
_CONTENTS = kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS
_RETRY_SECONDS = 5.0


class SnapshotController:
    """Reconciles VirtualMachineSnapshots.

    Where the cluster serves no volume snapshots (any more), nothing is taken, but what is deleted is let go.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._patience = Patience(ABANDONED_SECONDS)
        self._freezes = Freezes(cluster)
        self._snapshots = cluster.snapshots
        self._contents = cluster.snapshot_contents
        self._volumes = cluster.optional(kinds.VOLUME_SNAPSHOTS)
        self._classes = cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
        self.controller = Controller("virt-controller-snapshot-vmsnapshot", self._reconcile, workers=2)
        self.controller.watch(self._snapshots)
        self.controller.watch(self._contents, _snapshot_keys)
        self.controller.watch(cluster.vms, self._machine_keys)
        for informer in (cluster.claims, cluster.pods, cluster.informer(resources.STORAGE_CLASSES)):
            self.controller.depend(informer)
        if cluster.data_volumes is not None:
            self.controller.depend(cluster.data_volumes)
        self.controller.depend(cluster.revisions)
        self.controller.depend(cluster.vmis)

    def _machine_keys(self, vm: VirtualMachine) -> list[Key]:
        namespace = vm.metadata.namespace
        of_it = [
            snapshot.metadata.name
            for snapshot in self._snapshots.list(namespace)
            if snapshot.spec.source.name == vm.metadata.name
        ]
        # A snapshot that it is locked for may be gone: then the key is that of what unlocks it.
        holder = vm.observed.snapshot_in_progress or ""
        is_held = decisions.SOURCE_FINALIZER in vm.metadata.finalizers
        abandoned = [holder] if (holder or is_held) and holder not in of_it else []
        return [(namespace, name) for name in (*of_it, *abandoned)]

    async def _reconcile(self, key: Key) -> Result:
        try:
            snapshot = self._snapshots.get(*key)
        except UnfitDocument as error:
            return await self._leave_unfit(error)
        if snapshot is None:
            return await self._release_abandoned(*key)
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
            if snapshot.status.phase == "Failed":
                await self._discard_content(snapshot)
            await self._unlock(snapshot.metadata.name, machine)
            return DONE
        obstacle = self._obstacle(snapshot, machine)
        is_locked = machine is not None and not obstacle and await self._lock(snapshot, machine)
        observed = replace(self._observe(snapshot), obstacle=obstacle)
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

    async def _release_abandoned(self, namespace: str, name: str) -> Result:
        """Unlock the machines that have been locked for a while for a snapshot that is gone (no name: for
        none at all).

        Somebody may have taken the snapshot's finalizer off, or restored the cluster from a backup.
        """
        locked = [
            machine
            for machine in held_machines(self._cluster.vms, namespace)
            if (machine.holders.snapshot_in_progress or "") == name
            and (name or decisions.SOURCE_FINALIZER in machine.metadata.finalizers)
        ]
        left = self._patience.left((namespace, name), asyncio.get_running_loop().time()) if locked else 0.0
        if left:
            return RequeueAfter(left)
        self._patience.forget((namespace, name))
        if locked and not (name and await self._is_there(namespace, name)):
            for machine in locked:
                await self._unlock(name, machine)
        return DONE

    async def _is_there(self, namespace: str, name: str) -> bool:
        """Whether a snapshot exists: the caches of machines and snapshots are not of the same moment."""
        try:
            await self._cluster.client.get(_SNAPSHOTS, name, namespace)
        except StatusError as error:
            if not is_not_found(error):
                raise
            return False
        return True

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
            self._cluster.claims_of(namespace),
            "; ".join(problems),
        )

    def _obstacle(self, snapshot: VirtualMachineSnapshot, machine: HeldMachine | None) -> str:
        """Why the machine cannot be locked now; empty where it is locked for this snapshot already, or is
        not there, or cannot be read, which `_observe` tells.
        """
        namespace, name = snapshot.metadata.namespace, snapshot.spec.source.name
        if machine is None or machine.holders.snapshot_in_progress == snapshot.metadata.name:
            return ""
        vm = _get(self._cluster.vms, namespace, name, [])
        if vm is None:
            return ""
        problem = sources.obstacle(
            vm,
            self._cluster.claims_of(namespace),
            self._cluster.data_volumes_of(namespace),
            self._cluster.pods.list(namespace),
            is_online=self._cluster.vmis.contains(namespace, name),
        )
        other = machine.holders.snapshot_in_progress
        return problem or (f'snapshot "{other}" in progress' if other else "")

    async def _finish(self, snapshot: VirtualMachineSnapshot, machine: HeldMachine | None) -> Result:
        metadata, recorder = snapshot.metadata, self._cluster.recorder
        with until_deadline(snapshot, recorder, "unlocking its machine"):  # which is done without it, too
            await self._unlock(metadata.name, machine)
        await self._discard_content(snapshot)
        removing = finalizer_patch(metadata, decisions.SNAPSHOT_FINALIZER, present=False)
        await patch(self._cluster, _SNAPSHOTS, snapshot, removing)
        return DONE

    async def _discard_content(self, snapshot: VirtualMachineSnapshot) -> None:
        """Delete the content of a snapshot that is deleted or has failed, unless it is to stay."""
        of = snapshot.metadata
        found = any_object(self._contents, of.namespace, decisions.content_name(of.uid))
        if found is None:
            return
        is_usable = True
        if isinstance(found, VirtualMachineSnapshotContent):
            is_usable = found.status.ready_to_use is True
            if not found.status.creation_time:
                await self._thaw(found)
        if snapshot.spec.deletion_policy == "Retain" and is_usable:
            return
        if not found.metadata.is_being_deleted:
            await self._delete(_CONTENTS, found.metadata)
        await self._release_content(found)

    async def _thaw(self, content: VirtualMachineSnapshotContent) -> None:
        """Thaw the guest; one that does not is no reason to keep the content, since a freeze has an end."""
        try:
            await self._freezes.thaw(content)
        except (StatusError, UnfitDocument) as error:
            of = content.metadata
            name = content.spec.source.virtual_machine.metadata.name
            text = "the guest of %s/%s stays frozen until the deadline of its snapshot: %s"
            _log.warning(text, of.namespace, name, error)

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
        if machine is None or (machine.holders.snapshot_in_progress or "") != name:
            return
        removing = finalizer_patch(machine.metadata, decisions.SOURCE_FINALIZER, present=False)
        await patch(self._cluster, kinds.VIRTUAL_MACHINES, machine, removing)
        if not name:
            return
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

    async def _delete(self, kind: ResourceType, obj: ObjectMeta) -> None:
        try:
            await self._cluster.client.delete(kind, obj.name, obj.namespace)
        except StatusError as error:
            if not is_not_found(error):
                raise


def _snapshot_keys(content: VirtualMachineSnapshotContent) -> list[Key]:
    return [(content.metadata.namespace, content.spec.virtual_machine_snapshot_name or "")]


def _get(informer: Informer[Typed], namespace: str, name: str, problems: list[str]) -> Typed | None:
    try:
        return informer.get(namespace, name)
    except UnfitDocument as error:
        problems.append(str(error))
        return None
