"""The snapshots in a group get objects, by which volumes are made of them."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists
from kubecore.json import get_list
from kubecore.objects.structs import decode, readable
from kubecore.resources import PERSISTENT_VOLUMES
from kubecore.runtime import Informer
from virtplane.api import resources as kinds
from virtplane.api.meta_v1 import OwnerReference
from virtplane.api.storage_kinds import PersistentVolume
from virtplane.api.volumegroupsnapshot_v1 import (
    VolumeGroupSnapshot,
    VolumeGroupSnapshotContent,
    VolumeSnapshotInfo,
)
from virtplane.api.volumesnapshot_v1 import (
    VolumeSnapshot,
    VolumeSnapshotContent,
    VolumeSnapshotContentStatus,
)
from virtplane.cluster.objects import owners_patch, status_patch
from virtplane.storage.csi.parts import patch
from virtplane.storage.volumesnapshot import group_decisions as decisions
from virtplane.storage.volumesnapshot.decisions import Unfit

_REASON = "GroupSnapshotMemberMismatch"


class Members:
    """Makes and adopts the snapshots of groups. All methods raise StatusError, ConnectionFailed."""

    def __init__(
        self,
        client: Client,
        snapshots: Informer[VolumeSnapshot],
        contents: Informer[VolumeSnapshotContent],
    ) -> None:
        self._client = client
        self._snapshots = snapshots
        self._contents = contents

    async def provide(self, group: VolumeGroupSnapshot, content: VolumeGroupSnapshotContent) -> None:
        """An object for each snapshot of a group that was taken, first the user's, then its content.

        The content is bound from the beginning, so whatever ends this halfway leaves what goes with the
        group, or is completed the next time. Raises Unfit where something else has a member's name.
        """
        volumes: dict[str, PersistentVolume] | None = None
        for info in decisions.members_wanted(content):
            snapshot, member = self._cached(group, info)
            if volumes is None and (snapshot is None or member is None):
                volumes = await self._volumes(group, content)
            volume = (volumes or {}).get(info.volume_handle)
            if snapshot is None:
                snapshot = await self._snapshot(group, info, volume)
            if not decisions.is_member_of(snapshot, group):
                text = f"VolumeSnapshot {snapshot.metadata.name} exists and does not belong to the group"
                raise Unfit(_REASON, text)
            if member is None:
                member = await self._content(group, snapshot, content, info, volume)
            if member.spec.volume_snapshot_ref.uid != snapshot.metadata.uid:
                text = f"VolumeSnapshotContent {member.metadata.name} is bound to a different snapshot"
                raise Unfit(_REASON, text)
            status = decisions.member_status(member, content, info)
            operations = status_patch(member, VolumeSnapshotContentStatus, member.status, status)
            await patch(self._client, kinds.VOLUME_SNAPSHOT_CONTENTS, member, operations, "status")

    def _cached(
        self, group: VolumeGroupSnapshot, info: VolumeSnapshotInfo
    ) -> tuple[VolumeSnapshot | None, VolumeSnapshotContent | None]:
        snapshot, content = decisions.member_names(group, info.volume_handle)
        return self._snapshots.get(group.metadata.namespace, snapshot), self._contents.get(None, content)

    async def _volumes(
        self, group: VolumeGroupSnapshot, content: VolumeGroupSnapshotContent
    ) -> dict[str, PersistentVolume]:
        """The volumes of the group's namespace, by handle: the claims' labels may have changed meanwhile."""
        listing = get_list(await self._client.list(PERSISTENT_VOLUMES), "items")
        found: dict[str, PersistentVolume] = {}
        for volume in readable(PersistentVolume, listing):
            csi, claim = volume.spec.csi, volume.spec.claim_ref
            if csi is None or claim is None:
                continue
            if csi.driver == content.spec.driver and claim.namespace == group.metadata.namespace:
                found[csi.volume_handle] = volume
        return found

    async def _snapshot(
        self, group: VolumeGroupSnapshot, info: VolumeSnapshotInfo, volume: PersistentVolume | None
    ) -> VolumeSnapshot:
        claim = volume.spec.claim_ref if volume is not None else None
        document = decisions.new_member(group, info, (claim.name or "") if claim is not None else "")
        kind, namespace = kinds.VOLUME_SNAPSHOTS, group.metadata.namespace
        try:
            return decode(VolumeSnapshot, await self._client.create(kind, document, namespace))
        except StatusError as error:
            if not is_already_exists(error):
                raise
        return decode(VolumeSnapshot, await self._client.get(kind, document["metadata"]["name"], namespace))

    async def _content(
        self,
        group: VolumeGroupSnapshot,
        snapshot: VolumeSnapshot,
        content: VolumeGroupSnapshotContent,
        info: VolumeSnapshotInfo,
        volume: PersistentVolume | None,
    ) -> VolumeSnapshotContent:
        name = decisions.member_names(group, info.volume_handle)[1]
        mode = volume.spec.volume_mode if volume is not None else None
        document = decisions.new_member_content(snapshot, name, content, info, mode)
        kind = kinds.VOLUME_SNAPSHOT_CONTENTS
        try:
            return decode(VolumeSnapshotContent, await self._client.create(kind, document))
        except StatusError as error:
            if not is_already_exists(error):
                raise
        return decode(VolumeSnapshotContent, await self._client.get(kind, name))

    async def adopt(self, group: VolumeGroupSnapshot, content: VolumeGroupSnapshotContent) -> None:
        """Snapshots that existed before become the group's, where their driver says that they are in it."""
        for member in self._contents.list():
            if not decisions.is_given_member(member, content):
                continue
            reference = member.spec.volume_snapshot_ref
            snapshot = self._snapshots.get(reference.namespace or "", reference.name or "")
            if snapshot is None or snapshot.metadata.uid != reference.uid:
                continue
            if snapshot.metadata.is_being_deleted or decisions.is_member_of(snapshot, group):
                continue
            owner = decode(OwnerReference, decisions.owner_of_members(group))
            operations = owners_patch(snapshot, [*snapshot.metadata.owner_references, owner])
            await patch(self._client, kinds.VOLUME_SNAPSHOTS, snapshot, operations)

    async def of_group(self, group: VolumeGroupSnapshot) -> list[VolumeSnapshot]:
        """The snapshots that belong to the group; the server is asked."""
        found = await self._snapshots.read_live(group.metadata.namespace)
        return [each for each in found if decisions.is_member_of(each, group)]
