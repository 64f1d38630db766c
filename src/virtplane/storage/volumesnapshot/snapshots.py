"""The controller of VolumeSnapshots."""

from __future__ import annotations

import logging

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.objects.fields import go_quote
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, Manager, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.api.volumegroupsnapshot_v1 import VolumeGroupSnapshot
from virtplane.api.volumesnapshot_v1 import (
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
    VolumeSnapshotStatus,
)
from virtplane.cluster.objects import described, finalizer_patch, status_patch
from virtplane.storage.csi import parameters
from virtplane.storage.csi.content_sources import data_source, names_snapshot
from virtplane.storage.csi.parts import (
    Problem,
    annotations_patch,
    delete,
    members_patch,
    patch,
    versioned,
)
from virtplane.storage.csi.protection import is_pending
from virtplane.storage.volumesnapshot import decisions
from virtplane.storage.volumesnapshot.decisions import Unfit
from virtplane.storage.volumesnapshot.group_decisions import is_member_of
from virtplane.storage.volumesnapshot.volumes import live_claim, node_of, volume_of

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 15.0
"""For what no event tells of."""


class SnapshotController:
    """Reconciles snapshots."""

    def __init__(
        self, client: Client, manager: Manager, recorder: EventRecorder, *, groups: bool = False
    ) -> None:
        """`groups`: there are groups of snapshots, whose members go after them."""
        self._client = client
        self._recorder = recorder
        self._snapshots = manager.informer(kinds.VOLUME_SNAPSHOTS, struct=VolumeSnapshot)
        self._contents = manager.informer(kinds.VOLUME_SNAPSHOT_CONTENTS, struct=VolumeSnapshotContent)
        self._classes = manager.informer(kinds.VOLUME_SNAPSHOT_CLASSES, struct=VolumeSnapshotClass)
        self._claims: Informer[PersistentVolumeClaim] = manager.informer(
            PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim
        )
        controller = Controller("snapshot-controller", self.reconcile, workers=4, max_delay=60.0)
        controller.watch(self._snapshots)
        controller.watch(self._contents, _snapshot_of)
        controller.watch(self._classes, self._without_class)
        controller.watch(self._claims, self._of_claim)
        if groups:
            found = manager.informer(kinds.VOLUME_GROUP_SNAPSHOTS, struct=VolumeGroupSnapshot)
            controller.watch(found, self._members_of)
        manager.add(controller)

    def _without_class(self, found: VolumeSnapshotClass) -> list[Key]:
        name = found.metadata.name
        return [
            (each.metadata.namespace, each.metadata.name)
            for each in self._snapshots.list()
            if not decisions.is_ready(each) and each.spec.volume_snapshot_class_name in (None, name)
        ]

    def _members_of(self, group: VolumeGroupSnapshot) -> list[Key]:
        namespace = group.metadata.namespace
        found = [each for each in self._snapshots.list(namespace) if is_member_of(each, group)]
        return [(namespace, each.metadata.name) for each in found]

    def _of_claim(self, claim: PersistentVolumeClaim) -> list[Key]:
        """The snapshots that are taken of the claim, and the one that it is filled from."""
        namespace, name = claim.metadata.namespace, claim.metadata.name
        keys = [
            (namespace, each.metadata.name)
            for each in self._snapshots.list(namespace)
            if each.spec.source.persistent_volume_claim_name == name and not decisions.is_ready(each)
        ]
        try:
            source = data_source(claim, across_namespaces=True)
        except Problem:
            return keys
        if source is not None and source.is_snapshot:
            keys.append((source.namespace, source.name))
        return keys

    async def reconcile(self, key: Key) -> Result:
        """Bring the snapshot towards its content, or let it go. Raises StatusError, ConnectionFailed."""
        try:
            snapshot = self._snapshots.get(*key)
        except UnfitDocument as error:
            logger.error("a snapshot cannot be decoded, so it is left alone: %s", error)
            return DONE
        if snapshot is None or snapshot.spec.source == type(snapshot.spec.source)():
            return DONE
        if snapshot.metadata.is_being_deleted:
            return await self._let_go(snapshot)
        try:
            await self._advance(snapshot)
        except Unfit as unfit:
            await self._report(snapshot, unfit.reason, str(unfit))
            return RequeueAfter(_RETRY_SECONDS)
        if decisions.is_ready(snapshot):
            await self._free_claim(snapshot)
        return DONE

    # A snapshot that stays.

    async def _advance(self, snapshot: VolumeSnapshot) -> None:
        """Raises Unfit, StatusError, ConnectionFailed."""
        decisions.check_source(snapshot)
        group = decisions.group_owner(snapshot)
        found = await self._class_of(snapshot) if group is None else None
        content = await self._content_of(snapshot)
        if content is not None:
            decisions.check_content(snapshot, content)
        operations = _finalizers_patch(snapshot, decisions.wanted_finalizers(snapshot, content))
        if operations:
            await self._patch(kinds.VOLUME_SNAPSHOTS, snapshot, operations)
            return  # its event brings the snapshot back
        if decisions.is_ready(snapshot) and snapshot.status.bound_volume_snapshot_content_name:
            self._check_bound(snapshot, content)
            if group is None or snapshot.status.volume_group_snapshot_name:
                return
        if content is None:
            if snapshot.spec.source.volume_snapshot_content_name is not None:
                raise Unfit("SnapshotContentMissing", "VolumeSnapshotContent is missing")
            if group is not None:
                return  # its controller makes the content
            assert found is not None  # a snapshot that is to be taken has a class
            content = await self._create_content(snapshot, found)
        elif snapshot.spec.source.volume_snapshot_content_name is not None:
            content = await self._bind(snapshot, content)
        if content is not None:
            await self._write_status(snapshot, decisions.status_of(snapshot, content))

    def _check_bound(self, snapshot: VolumeSnapshot, content: VolumeSnapshotContent | None) -> None:
        if content is None:
            raise Unfit("SnapshotContentMissing", "VolumeSnapshotContent is missing")
        if not decisions.is_bound_to(content, snapshot):
            text = "VolumeSnapshotContent is not bound to the VolumeSnapshot correctly"
            raise Unfit("SnapshotMisbound", text)

    async def _class_of(self, snapshot: VolumeSnapshot) -> VolumeSnapshotClass | None:
        """The snapshot's class, its driver's default where it names none. Raises Unfit."""
        name = snapshot.spec.volume_snapshot_class_name
        if name is not None:
            found = self._classes.get(None, name)
            if found is None and not decisions.is_ready(snapshot):
                missing = f'volumesnapshotclass.snapshot.storage.k8s.io "{name}" not found'
                raise Unfit("GetSnapshotClassFailed", f"Failed to get snapshot class with error {missing}")
            return found
        if snapshot.spec.source.volume_snapshot_content_name is not None or decisions.is_ready(snapshot):
            return None
        try:
            _, volume = await self._volume_of(snapshot)
        except Unfit as unfit:
            text = f"Failed to set default snapshot class with error {unfit}"
            raise Unfit("SetDefaultSnapshotClassFailed", text) from unfit
        if volume.spec.csi is None:
            problem = (
                f"snapshotting non-CSI volumes is not supported, snapshot:{decisions.key_text(snapshot)}"
            )
            text = f"Failed to set default snapshot class with error {problem}"
            raise Unfit("SetDefaultSnapshotClassFailed", text)
        found = decisions.default_class(volume.spec.csi.driver, self._classes.list())
        path = "/spec/volumeSnapshotClassName"
        operations = versioned(snapshot, [{"op": "add", "path": path, "value": found.metadata.name}])
        await self._patch(kinds.VOLUME_SNAPSHOTS, snapshot, operations)
        return found

    async def _content_of(self, snapshot: VolumeSnapshot) -> VolumeSnapshotContent | None:
        """The content, read from the server: contents hold data, and the cache may not show one yet."""
        for name in decisions.content_names(snapshot):
            try:
                document = await self._client.get(kinds.VOLUME_SNAPSHOT_CONTENTS, name)
                return decode(VolumeSnapshotContent, document)
            except StatusError as error:
                if not is_not_found(error):
                    raise
        return None

    async def _volume_of(self, snapshot: VolumeSnapshot) -> tuple[PersistentVolumeClaim, PersistentVolume]:
        """The claim and volume to take a snapshot of. Raises Unfit."""
        name = snapshot.spec.source.persistent_volume_claim_name or ""
        claim = self._claims.get(snapshot.metadata.namespace, name)
        reason = "SnapshotContentCreationFailed"
        if claim is None:
            missing = go_quote(f'persistentvolumeclaim "{name}" not found')
            raise Unfit(reason, f"failed to retrieve PVC {name} from the lister: {missing}")
        return claim, await volume_of(self._client, claim)

    async def _create_content(
        self, snapshot: VolumeSnapshot, found: VolumeSnapshotClass
    ) -> VolumeSnapshotContent | None:
        """The content by which the driver takes the snapshot. Raises Unfit."""
        reason, text = "SnapshotContentCreationFailed", "Failed to create snapshot content with error "
        try:
            claim, volume = await self._volume_of(snapshot)
            reference = parameters.secret_reference(
                parameters.SNAPSHOTTER, found.parameters, *_tokens(snapshot)
            )
        except (Unfit, Problem) as problem:
            inputs = f"failed to get input parameters to create snapshot {snapshot.metadata.name}: "
            raise Unfit(reason, text + inputs + go_quote(str(problem))) from problem
        if volume.spec.csi is None:
            missing = f"cannot find CSI PersistentVolumeSource for volume {volume.metadata.name}"
            raise Unfit(reason, text + missing)
        await self._hold_claim(claim)
        node = await node_of(self._client, [volume])
        document = decisions.new_content(snapshot, found, volume, reference, node)
        try:
            created = await self._client.create(kinds.VOLUME_SNAPSHOT_CONTENTS, document)
        except StatusError as error:
            if is_already_exists(error):
                return None  # its event brings the snapshot back
            raise
        waiting = f"Waiting for a snapshot {decisions.key_text(snapshot)} to be created by the CSI driver."
        self._recorder.event(described(snapshot), "Normal", "CreatingSnapshot", waiting)
        return decode(VolumeSnapshotContent, created)

    async def _hold_claim(self, claim: PersistentVolumeClaim) -> None:
        """The claim stays until the snapshot is taken. Raises Unfit."""
        if names.CLAIM_SOURCE_FINALIZER in claim.metadata.finalizers:
            return
        if claim.metadata.is_being_deleted:
            raise Unfit(
                "SnapshotContentCreationFailed",
                "Failed to create snapshot content with error snapshot controller failed to update "
                f"{claim.metadata.name} on API server: "
                "cannot add finalizer on claim because it is being deleted",
            )
        operations = finalizer_patch(claim.metadata, names.CLAIM_SOURCE_FINALIZER, present=True)
        await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, operations)

    async def _bind(
        self, snapshot: VolumeSnapshot, content: VolumeSnapshotContent
    ) -> VolumeSnapshotContent | None:
        """A content that exists already becomes the snapshot's own."""
        reference = content.spec.volume_snapshot_ref
        if reference.uid and content.spec.volume_snapshot_class_name is not None:
            return content
        before, name = encode(content.spec), snapshot.spec.volume_snapshot_class_name
        after = {**before, "volumeSnapshotRef": {**encode(reference), "uid": snapshot.metadata.uid}}
        if name is not None:
            after["volumeSnapshotClassName"] = name
        operations = versioned(content, members_patch("/spec", before, after))
        if not operations:
            return content
        document = await self._patch(kinds.VOLUME_SNAPSHOT_CONTENTS, content, operations)
        return None if document is None else decode(VolumeSnapshotContent, document)

    async def _write_status(self, snapshot: VolumeSnapshot, status: JsonObject) -> None:
        operations = status_patch(snapshot, VolumeSnapshotStatus, snapshot.status, status)
        if not operations:
            return
        if await self._patch(kinds.VOLUME_SNAPSHOTS, snapshot, operations, "status") is None:
            return
        name = decisions.key_text(snapshot)
        if "creationTime" in status and snapshot.status.creation_time is None:
            text = f"Snapshot {name} was successfully created by the CSI driver."
            self._recorder.event(described(snapshot), "Normal", "SnapshotCreated", text)
        if status.get("readyToUse") and not decisions.is_ready(snapshot):
            text = f"Snapshot {name} is ready to use."
            self._recorder.event(described(snapshot), "Normal", "SnapshotReady", text)

    async def _report(self, snapshot: VolumeSnapshot, reason: str, text: str) -> None:
        """Say in the status and by an event what is wrong, unless that is what was said last."""
        error = snapshot.status.error
        if error is not None and error.message == text:
            return
        status = encode(snapshot.status)
        status["error"] = {"message": text, "time": times.now_rfc3339()}
        if reason not in ("SetDefaultSnapshotClassFailed", "GetSnapshotClassFailed"):
            status["readyToUse"] = False
        operations = status_patch(snapshot, VolumeSnapshotStatus, snapshot.status, status)
        await self._patch(kinds.VOLUME_SNAPSHOTS, snapshot, operations, "status")
        self._recorder.event(described(snapshot), "Warning", reason, text)

    # A snapshot that goes.

    async def _let_go(self, snapshot: VolumeSnapshot) -> Result:
        """Delete the content first, if its policy says so."""
        if not decisions.is_held(snapshot):
            return DONE
        if await self._is_kept_by_group(snapshot):
            return RequeueAfter(_RETRY_SECONDS)
        content = await self._content_of(snapshot)
        if content is not None and not decisions.is_bound_to(content, snapshot):
            content = None
        if content is not None and self._is_being_restored(snapshot):
            text = "Snapshot is being used to restore a PVC"
            self._recorder.event(described(snapshot), "Warning", "SnapshotDeletePending", text)
            return RequeueAfter(_RETRY_SECONDS)
        goes_along = content is not None and content.spec.deletion_policy == "Delete"
        if content is not None:
            await mark_deleted(self._client, content)
            if goes_along and not content.metadata.is_being_deleted:
                await delete(self._client, kinds.VOLUME_SNAPSHOT_CONTENTS, content)
        await self._free_claim(snapshot)
        gone = {names.SNAPSHOT_SOURCE_FINALIZER, names.SNAPSHOT_IN_GROUP_FINALIZER}
        if not goes_along:
            gone.add(names.SNAPSHOT_BOUND_FINALIZER)
        rest = tuple(each for each in snapshot.metadata.finalizers if each not in gone)
        await self._patch(kinds.VOLUME_SNAPSHOTS, snapshot, _finalizers_patch(snapshot, rest))
        return DONE

    async def _is_kept_by_group(self, snapshot: VolumeSnapshot) -> bool:
        """Whether the group is still there, which goes as a whole and takes its members along."""
        owner = decisions.group_owner(snapshot)
        if owner is None:
            return False
        namespace = snapshot.metadata.namespace
        try:
            found = await self._client.get(kinds.VOLUME_GROUP_SNAPSHOTS, owner.name, namespace)
        except StatusError as error:
            if is_not_found(error):
                return False
            raise
        if meta.uid(found) != owner.uid:
            return False
        if not meta.is_being_deleted(found):
            text = decisions.kept_by_group(snapshot, owner.name)
            self._recorder.event(described(snapshot), "Warning", "SnapshotDeletePending", text)
        return True

    def _is_being_restored(self, snapshot: VolumeSnapshot) -> bool:
        key = snapshot.metadata.namespace, snapshot.metadata.name
        return any(is_pending(claim) and names_snapshot(claim, *key) for claim in self._claims.list())

    async def _free_claim(self, snapshot: VolumeSnapshot) -> None:
        """Let the claim go, unless another snapshot is being taken of it."""
        namespace = snapshot.metadata.namespace
        name = snapshot.spec.source.persistent_volume_claim_name
        # Live: a cache from before the claim was held would leave it held for good.
        claim = await live_claim(self._client, namespace, name) if name else None
        if claim is None or name is None:
            return
        operations = finalizer_patch(claim.metadata, names.CLAIM_SOURCE_FINALIZER, present=False)
        if not operations:
            return
        others = [
            each
            for each in await self._snapshots.read_live(namespace)
            if each.metadata.uid != snapshot.metadata.uid and decisions.needs_claim(each, name)
        ]
        if not others:
            await self._patch(PERSISTENT_VOLUME_CLAIMS, claim, operations)

    async def _patch(
        self,
        kind: ResourceType,
        obj: VolumeSnapshot | VolumeSnapshotContent | PersistentVolumeClaim,
        operations: list[JsonObject],
        subresource: str | None = None,
    ) -> JsonObject | None:
        return await patch(self._client, kind, obj, operations, subresource)


async def mark_deleted(client: Client, content: VolumeSnapshotContent) -> None:
    """Tell the driver's side that the snapshot is no longer wanted. Raises StatusError."""
    operations = annotations_patch(content, {names.SNAPSHOT_BEING_DELETED: "yes"})
    await patch(client, kinds.VOLUME_SNAPSHOT_CONTENTS, content, operations)


def _finalizers_patch(snapshot: VolumeSnapshot, wanted: tuple[str, ...]) -> list[JsonObject]:
    before = {"finalizers": [*snapshot.metadata.finalizers]}
    return versioned(snapshot, members_patch("/metadata", before, {"finalizers": [*wanted]}))


def _tokens(snapshot: VolumeSnapshot) -> tuple[dict[str, str], dict[str, str]]:
    """What names of secrets may hold, and their namespaces."""
    namespaces = {
        "volumesnapshotcontent.name": decisions.content_name(snapshot),
        "volumesnapshot.namespace": snapshot.metadata.namespace,
    }
    return {**namespaces, "volumesnapshot.name": snapshot.metadata.name}, namespaces


def _snapshot_of(content: VolumeSnapshotContent) -> list[Key]:
    reference = content.spec.volume_snapshot_ref
    return [(reference.namespace or "", reference.name)] if reference.name else []
