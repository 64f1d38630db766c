"""The controller of VolumeGroupSnapshots."""

from __future__ import annotations

import logging

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, Manager, RequeueAfter, Result
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.api.volumegroupsnapshot_v1 import (
    VolumeGroupSnapshot,
    VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent,
    VolumeGroupSnapshotStatus,
)
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent
from virtplane.cluster.objects import described, finalizer_patch, status_patch
from virtplane.storage.csi.content_sources import names_snapshot
from virtplane.storage.csi.parts import Problem, delete, members_patch, patch, versioned
from virtplane.storage.csi.protection import is_pending
from virtplane.storage.volumesnapshot import group_decisions as decisions
from virtplane.storage.volumesnapshot.decisions import Unfit, group_owner
from virtplane.storage.volumesnapshot.group_contents import mark_deleted
from virtplane.storage.volumesnapshot.group_members import Members
from virtplane.storage.volumesnapshot.volumes import node_of, volume_of

logger = logging.getLogger(__name__)

_KIND, _CONTENTS = kinds.VOLUME_GROUP_SNAPSHOTS, kinds.VOLUME_GROUP_SNAPSHOT_CONTENTS
_RETRY_SECONDS = 15.0
"""For what no event tells of."""
_KEEP_READINESS = frozenset({"SetDefaultGroupSnapshotClassFailed", "GetGroupSnapshotClassFailed"})


class GroupController:
    """Reconciles groups."""

    def __init__(self, client: Client, manager: Manager, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder
        self._groups = manager.informer(_KIND, struct=VolumeGroupSnapshot)
        self._group_contents = manager.informer(_CONTENTS, struct=VolumeGroupSnapshotContent)
        self._classes = manager.informer(kinds.VOLUME_GROUP_SNAPSHOT_CLASSES, struct=VolumeGroupSnapshotClass)
        self._claims: Informer[PersistentVolumeClaim] = manager.informer(
            PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim
        )
        snapshots = manager.informer(kinds.VOLUME_SNAPSHOTS, struct=VolumeSnapshot)
        contents = manager.informer(kinds.VOLUME_SNAPSHOT_CONTENTS, struct=VolumeSnapshotContent)
        self._members = Members(client, snapshots, contents)
        controller = Controller("group-snapshot-controller", self.reconcile, workers=4, max_delay=60.0)
        controller.watch(self._groups)
        controller.watch(self._group_contents, _group_of)
        controller.watch(self._classes, self._without_class)
        controller.watch(self._claims, self._waiting_for)
        controller.watch(snapshots, _of_member)
        controller.watch(contents, self._of_given_member)
        manager.add(controller)

    def _without_class(self, found: VolumeGroupSnapshotClass) -> list[Key]:
        name = found.metadata.name
        return [
            (each.metadata.namespace, each.metadata.name)
            for each in self._groups.list()
            if not decisions.is_ready(each) and each.spec.volume_group_snapshot_class_name in (None, name)
        ]

    def _waiting_for(self, claim: PersistentVolumeClaim) -> list[Key]:
        """The groups that may be taken of the claim, or wait until it is filled from one of their members."""
        namespace = claim.metadata.namespace
        return [
            (namespace, each.metadata.name)
            for each in self._groups.list(namespace)
            if each.metadata.is_being_deleted or each.status.error is not None
        ]

    def _of_given_member(self, content: VolumeSnapshotContent) -> list[Key]:
        found = [each for each in self._group_contents.list() if decisions.is_given_member(content, each)]
        return [key for each in found for key in _group_of(each)]

    async def reconcile(self, key: Key) -> Result:
        """Bring the group towards its content, or let it go. Raises StatusError, ConnectionFailed."""
        try:
            group = self._groups.get(*key)
        except UnfitDocument as error:
            logger.error("a group snapshot cannot be decoded, so it is left alone: %s", error)
            return DONE
        if group is None:
            return DONE
        if group.metadata.is_being_deleted:
            return await self._let_go(group)
        try:
            await self._advance(group)
        except Unfit as unfit:
            await self._report(group, unfit.reason, str(unfit))
            return RequeueAfter(_RETRY_SECONDS)
        return DONE

    # A group that stays.

    async def _advance(self, group: VolumeGroupSnapshot) -> None:
        """Raises Unfit, StatusError, ConnectionFailed."""
        decisions.check_source(group)
        is_given = group.spec.source.volume_group_snapshot_content_name is not None
        content = await self._content_of(group)
        if content is not None:
            decisions.check_content(group, content)
        operations = finalizer_patch(group.metadata, names.GROUP_BOUND_FINALIZER, present=True)
        if operations:
            await patch(self._client, _KIND, group, operations)
            return  # its event brings the group back
        is_bound = bool(group.status.bound_volume_group_snapshot_content_name)
        if content is None:
            if is_given or is_bound:
                raise Unfit("GroupSnapshotContentMissing", "VolumeGroupSnapshotContent is missing")
            content = await self._create_content(group)
        elif is_given:
            content = await self._bind(group, content)
        if content is None:
            return  # an event brings the group back
        if is_given:
            await self._members.adopt(group, content)
        elif not decisions.is_ready(group):
            # Whoever sees the group ready finds its members.
            await self._members.provide(group, content)
        if not (decisions.is_ready(group) and is_bound):
            await self._write_status(group, decisions.status_of(group, content))

    async def _content_of(self, group: VolumeGroupSnapshot) -> VolumeGroupSnapshotContent | None:
        """The content, read from the server: contents hold data, and the cache may not show one yet."""
        name = (
            group.spec.source.volume_group_snapshot_content_name
            or group.status.bound_volume_group_snapshot_content_name
            or decisions.content_name(group)
        )
        try:
            return decode(VolumeGroupSnapshotContent, await self._client.get(_CONTENTS, name))
        except StatusError as error:
            if is_not_found(error):
                return None
            raise

    async def _class_of(
        self, group: VolumeGroupSnapshot, volumes: list[PersistentVolume]
    ) -> VolumeGroupSnapshotClass | None:
        """The group's class; None where it has just been given its driver's default. Raises Unfit."""
        name = group.spec.volume_group_snapshot_class_name
        if name is not None:
            found = self._classes.get(None, name)
            if found is None:
                missing = f'volumegroupsnapshotclass.groupsnapshot.storage.k8s.io "{name}" not found'
                text = f"failed to get group snapshot class with error {missing}"
                raise Unfit("GetGroupSnapshotClassFailed", text)
            return found
        csi = volumes[0].spec.csi
        if csi is None:
            text = (
                f"snapshotting non-CSI volumes is not supported, group snapshot:{decisions.key_text(group)}"
            )
            raise decisions.no_default(text)
        found = decisions.default_class(csi.driver, self._classes.list())
        path = "/spec/volumeGroupSnapshotClassName"
        operations = versioned(group, [{"op": "add", "path": path, "value": found.metadata.name}])
        await patch(self._client, _KIND, group, operations)
        return None

    async def _volumes_of(self, group: VolumeGroupSnapshot) -> list[PersistentVolume]:
        """The volumes to take snapshots of; the server is asked for their claims. Raises Unfit."""
        selector = decisions.selector_of(group)
        live = await self._claims.read_live(group.metadata.namespace)
        claims = [claim for claim in live if selector.matches(claim.metadata.labels)]
        try:
            if not claims:
                text = f"label selector {selector} for group snapshot not applied to any PVC"
                raise decisions.creation_failed(text)
            return [await volume_of(self._client, claim, "group snapshot") for claim in claims]
        except Unfit as unfit:
            if group.spec.volume_group_snapshot_class_name is None:
                raise decisions.no_default(unfit) from unfit
            raise decisions.creation_failed(unfit) from unfit

    async def _create_content(self, group: VolumeGroupSnapshot) -> VolumeGroupSnapshotContent | None:
        """The content by which the driver takes the group. Raises Unfit."""
        volumes = await self._volumes_of(group)
        found = await self._class_of(group, volumes)
        if found is None:
            return None
        handles = decisions.volume_handles(group, found, volumes)
        try:
            secret = decisions.secret_of(group, found)
        except Problem as problem:
            raise decisions.creation_failed(problem) from problem
        node = await node_of(self._client, volumes)
        document = decisions.new_content(group, found, handles, secret, node)
        try:
            created = await self._client.create(_CONTENTS, document)
        except StatusError as error:
            if is_already_exists(error):
                return None  # its event brings the group back
            raise
        waiting = f"Waiting for a group snapshot {decisions.key_text(group)} to be created by the CSI driver."
        self._recorder.event(described(group), "Normal", "CreatingGroupSnapshot", waiting)
        return decode(VolumeGroupSnapshotContent, created)

    async def _bind(
        self, group: VolumeGroupSnapshot, content: VolumeGroupSnapshotContent
    ) -> VolumeGroupSnapshotContent | None:
        """A content that exists already becomes the group's own."""
        reference = content.spec.volume_group_snapshot_ref
        before = encode(content.spec)
        after = {**before, "volumeGroupSnapshotRef": {**encode(reference), "uid": group.metadata.uid}}
        name = group.spec.volume_group_snapshot_class_name
        if name is not None:
            after.setdefault("volumeGroupSnapshotClassName", name)
        operations = versioned(content, members_patch("/spec", before, after))
        if not operations:
            return content
        document = await patch(self._client, _CONTENTS, content, operations)
        return None if document is None else decode(VolumeGroupSnapshotContent, document)

    async def _write_status(self, group: VolumeGroupSnapshot, status: JsonObject) -> None:
        operations = status_patch(group, VolumeGroupSnapshotStatus, group.status, status)
        if not operations:
            return
        if await patch(self._client, _KIND, group, operations, "status") is None:
            return
        name = decisions.key_text(group)
        if "creationTime" in status and group.status.creation_time is None:
            text = f"GroupSnapshot {name} was successfully created by the CSI driver."
            self._recorder.event(described(group), "Normal", "GroupSnapshotCreated", text)
        if status.get("readyToUse") and not decisions.is_ready(group):
            text = f"GroupSnapshot {name} is ready to use."
            self._recorder.event(described(group), "Normal", "GroupSnapshotReady", text)

    async def _report(self, group: VolumeGroupSnapshot, reason: str, text: str) -> None:
        """Say in the status and by an event what is wrong, unless that is what was said last."""
        error = group.status.error
        if error is not None and error.message == text:
            return
        status = encode(group.status)
        status["error"] = {"message": text, "time": times.now_rfc3339()}
        if reason not in _KEEP_READINESS:
            status["readyToUse"] = False
        operations = status_patch(group, VolumeGroupSnapshotStatus, group.status, status)
        await patch(self._client, _KIND, group, operations, "status")
        self._recorder.event(described(group), "Warning", reason, text)

    # A group that goes.

    async def _let_go(self, group: VolumeGroupSnapshot) -> Result:
        """Delete the content first, if its policy says so, and the members, which go after the group."""
        if names.GROUP_BOUND_FINALIZER not in group.metadata.finalizers:
            return DONE
        content = await self._content_of(group)
        if content is not None and not decisions.is_bound_to(content, group):
            content = None
        members = await self._members.of_group(group)
        for member in members:
            if content is not None and self._is_being_restored(member):
                name = f"{member.metadata.namespace}/{member.metadata.name}"
                text = (
                    f"Snapshot {name} belonging to VolumeGroupSnapshot {decisions.key_text(group)} "
                    "is being used to restore a PVC"
                )
                self._recorder.event(described(group), "Warning", "SnapshotDeletePending", text)
                return RequeueAfter(_RETRY_SECONDS)
        goes_along = content is not None and content.spec.deletion_policy == "Delete"
        if content is not None:
            await mark_deleted(self._client, content)
            if goes_along and not content.metadata.is_being_deleted:
                await delete(self._client, _CONTENTS, content)
        for member in members:
            if not member.metadata.is_being_deleted:
                await delete(self._client, kinds.VOLUME_SNAPSHOTS, member)
        if not goes_along:
            operations = finalizer_patch(group.metadata, names.GROUP_BOUND_FINALIZER, present=False)
            await patch(self._client, _KIND, group, operations)
        return DONE

    def _is_being_restored(self, member: VolumeSnapshot) -> bool:
        key = member.metadata.namespace, member.metadata.name
        return any(is_pending(claim) and names_snapshot(claim, *key) for claim in self._claims.list())


def _group_of(content: VolumeGroupSnapshotContent) -> list[Key]:
    reference = content.spec.volume_group_snapshot_ref
    return [(reference.namespace or "", reference.name)] if reference.name else []


def _of_member(snapshot: VolumeSnapshot) -> list[Key]:
    owner = group_owner(snapshot)
    return [(snapshot.metadata.namespace, owner.name)] if owner is not None else []
