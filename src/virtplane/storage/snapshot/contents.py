"""The controller of the contents of snapshots: it freezes guests and takes their volumes."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace as changed

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument, decode, readable
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api.snapshot_v1beta1.snapshot import (
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    VirtualMachineSnapshotContentStatus,
)
from virtplane.api.storage_kinds import StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass
from virtplane.cluster.caches import Cluster, HasMetadata, owner_key
from virtplane.cluster.objects import (
    INVALID,
    AnyObject,
    any_object,
    described,
    finalizer_patch,
    patch,
    status_patch,
)
from virtplane.storage.snapshot import decisions
from virtplane.storage.snapshot.freezes import Freezes

_SNAPSHOTS = kinds.VIRTUAL_MACHINE_SNAPSHOTS
_CONTENTS = kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS
_RETRY_SECONDS = 5.0
_MISSING = "VolumeSnapshotMissing"


class ContentController:
    """Reconciles VirtualMachineSnapshotContents."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._freezes = Freezes(cluster)
        self._snapshots = cluster.snapshots
        self._contents = cluster.snapshot_contents
        self._volumes = cluster.optional(kinds.VOLUME_SNAPSHOTS)
        self._classes = cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
        self.controller = Controller("virt-controller-snapshot-vmsnapshotcontent", self._reconcile)
        self.controller.watch(self._contents)
        self.controller.watch(self._snapshots, _content_keys)
        if self._volumes is not None:
            self.controller.watch(self._volumes, owner_key(_CONTENTS.kind))
        if self._classes is not None:
            self.controller.depend(self._classes)
        for informer in (cluster.claims, cluster.informer(resources.STORAGE_CLASSES), cluster.vmis):
            self.controller.depend(informer)

    async def _reconcile(self, key: Key) -> Result:
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
            snapshot = None if content.status.creation_time else self._snapshot_of(content)
            if snapshot is not None and decisions.has_failed(snapshot, times.now()):
                return DONE  # its content goes
            if snapshot is not None and not snapshot.metadata.is_being_deleted:
                classes = self._classes.list()
                problem = await self._create_volume_snapshots(content, snapshot, found, classes)
        except UnfitDocument as error:
            problem = str(error)
            self._cluster.recorder.event(described(content), "Warning", INVALID, problem)
            # An object that cannot be decoded at the moment must not undo a finished snapshot.
            if content.status.creation_time:
                return DONE
        await self._update(content, found, problem)
        return RequeueAfter(_RETRY_SECONDS) if problem else DONE

    def _snapshot_of(self, content: VirtualMachineSnapshotContent) -> VirtualMachineSnapshot | None:
        """The content's snapshot; not another one that has its name. Raises UnfitDocument."""
        name = content.spec.virtual_machine_snapshot_name or ""
        snapshot = self._snapshots.get(content.metadata.namespace, name)
        if snapshot is None or decisions.content_name(snapshot.metadata.uid) != content.metadata.name:
            return None
        return snapshot

    async def _update(
        self, content: VirtualMachineSnapshotContent, found: Mapping[str, VolumeSnapshot], problem: str
    ) -> None:
        status = decisions.content_status(content, found)
        if problem:
            status["error"] = {"time": times.now_rfc3339(), "message": problem}
            status.pop("creationTime", None)
            status["readyToUse"] = False
        struct = VirtualMachineSnapshotContentStatus
        if _without_time(decode(struct, status)) == _without_time(content.status):
            return
        operations = status_patch(content, struct, content.status, status)
        await patch(self._cluster, _CONTENTS, content, operations, "status")
        if content.status.creation_time:
            for name in decisions.missing_snapshots(content, found):
                text = f"VolumeSnapshot {name} no longer exists"
                self._cluster.recorder.event(described(content), "Warning", _MISSING, text)

    async def _release_unneeded(self, content: HasMetadata, name: str) -> Result:
        """Remove the finalizer of a deleted content once its snapshot (`name`; empty if unknown) is deleted,
        too.
        """
        snapshot = any_object(self._snapshots, content.metadata.namespace, name)
        is_going = snapshot is None or snapshot.metadata.is_being_deleted
        if content.metadata.is_being_deleted and is_going:
            removing = finalizer_patch(content.metadata, decisions.CONTENT_FINALIZER, present=False)
            await patch(self._cluster, _CONTENTS, content, removing)
        return DONE

    async def _create_volume_snapshots(
        self,
        content: VirtualMachineSnapshotContent,
        snapshot: VirtualMachineSnapshot,
        found: dict[str, VolumeSnapshot],
        classes: list[JsonObject],
    ) -> str:
        """Create missing VolumeSnapshots, freezing a running guest that has an agent. Returns a problem, if
        any.
        """
        missing = set(decisions.missing_snapshots(content, found))
        if not missing:
            if found and all(each.status.creation_time for each in found.values()):
                await self._freezes.thaw(content)
            return ""
        planned: list[JsonObject] = []
        for backup in content.spec.volume_backups:
            if backup.volume_snapshot_name not in missing:
                continue
            spec = backup.persistent_volume_claim.spec
            name = (spec.storage_class_name if spec else "") or ""
            chosen = decisions.snapshot_class(self._driver(name), readable(VolumeSnapshotClass, classes))
            if not chosen:
                return f"couldn't find VolumeSnapshotClass for {name}"
            planned.append(decisions.volume_snapshot(content, backup, chosen))
        try:
            await self._freezes.freeze(content, decisions.deadline_seconds(snapshot))
        except StatusError as error:
            return str(error)
        for volume in planned:
            await self._create(content, volume, found)
        return ""

    async def _create(
        self, content: VirtualMachineSnapshotContent, volume: JsonObject, found: dict[str, VolumeSnapshot]
    ) -> None:
        try:
            created = await self._cluster.client.create(kinds.VOLUME_SNAPSHOTS, volume)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            # Created before, but not in the cache yet: its event comes.
            found[meta.name(volume)] = VolumeSnapshot()
            return
        found[meta.name(created)] = decode(VolumeSnapshot, created)
        text = f"Successfully created VolumeSnapshot {meta.name(created)}"
        reason = "SuccessfulVolumeSnapshotCreate"
        self._cluster.recorder.event(described(content), "Normal", reason, text)

    def _driver(self, storage_class: str) -> str:
        found = self._cluster.informer(resources.STORAGE_CLASSES).get(None, storage_class)
        return decode(StorageClass, found).provisioner if found else ""


def _content_keys(snapshot: VirtualMachineSnapshot) -> list[Key]:
    return [(snapshot.metadata.namespace, decisions.content_name(snapshot.metadata.uid))]


def _snapshots_of(
    content: VirtualMachineSnapshotContent, volumes: list[JsonObject]
) -> dict[str, VolumeSnapshot]:
    names = {backup.volume_snapshot_name for backup in content.spec.volume_backups}
    return {meta.name(item): decode(VolumeSnapshot, item) for item in volumes if meta.name(item) in names}


def _without_time(status: VirtualMachineSnapshotContentStatus) -> VirtualMachineSnapshotContentStatus:
    """The status without the time of its error, which alone is no reason to write it."""
    return changed(status, error=changed(status.error, time=None)) if status.error is not None else status
