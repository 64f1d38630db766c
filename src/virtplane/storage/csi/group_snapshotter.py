"""VolumeGroupSnapshotContents become snapshots of several volumes at one moment, and go with them.

This is the csi-snapshotter's part with the feature gate CSIVolumeGroupSnapshot. As single contents, one gets
an annotation before the driver is asked, which goes once it is known whether there is a group: until then the
content is not deleted. The snapshots in the group get their objects from the snapshot controller.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.fields import go_quote
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.runtime import DONE, Controller, Key, Result
from kubecore.wire import Message
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.volumegroupsnapshot_v1 import (
    VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent,
    VolumeGroupSnapshotContentStatus,
)
from virtplane.storage.csi import parameters
from virtplane.storage.csi.contents import Contents, Work
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import (
    Environment,
    Problem,
    read_annotated_secret,
    read_secret,
)
from virtplane.storage.csi.requests import Naming

logger = logging.getLogger(__name__)

_KIND = kinds.VOLUME_GROUP_SNAPSHOT_CONTENTS
_NANO = 10**9
_UNDELETED = "GroupSnapshotDeleteError"
_LATEST_SECONDS = 253402300799
"""The end of the year 9999: drivers may say anything."""


def is_to_be_deleted(content: VolumeGroupSnapshotContent) -> bool:
    """Whether the snapshot controller, or nobody, needs the content any more."""
    metadata = content.metadata
    if not metadata.is_being_deleted:
        return False
    if content.spec.source.group_snapshot_handles and not content.spec.volume_group_snapshot_ref.uid:
        return True
    if names.GROUP_BEING_CREATED in metadata.annotations:
        return False
    return names.GROUP_BEING_DELETED in metadata.annotations


def is_ready(content: VolumeGroupSnapshotContent) -> bool:
    """Whether volumes can be made of all snapshots of the group."""
    return content.status is not None and bool(content.status.ready_to_use)


def snapshot_handles(content: VolumeGroupSnapshotContent) -> list[str]:
    """The snapshots in the group, as far as they are known."""
    given = content.spec.source.group_snapshot_handles
    if content.status is not None and content.status.volume_snapshot_info_list:
        return [each.snapshot_handle for each in content.status.volume_snapshot_info_list]
    return list(given.volume_snapshot_handles) if given is not None else []


def new_status(
    content: VolumeGroupSnapshotContent, group: Message, handle: str, *, with_members: bool
) -> JsonObject:
    """The content's status after the driver's answer. What was once said of the time stays."""
    status = encode(content.status) if content.status is not None else {}
    status.setdefault("volumeGroupSnapshotHandle", handle)
    moment = times.now_rfc3339()
    if group.HasField("creation_time"):
        seconds = min(max(group.creation_time.seconds, 0), _LATEST_SECONDS)
        moment = times.format_time(datetime.fromtimestamp(seconds, UTC))
    status.setdefault("creationTime", moment)
    if with_members:
        known = {each["snapshotHandle"]: each for each in status.get("volumeSnapshotInfoList", [])}
        status["volumeSnapshotInfoList"] = [
            {**_info(each), **known.get(each.snapshot_id, {}), "readyToUse": each.ready_to_use}
            for each in group.snapshots
        ]
    status["readyToUse"] = bool(group.ready_to_use)
    if group.ready_to_use:
        status.pop("error", None)
    return status


def _info(snapshot: Message) -> JsonObject:
    info: JsonObject = {"snapshotHandle": snapshot.snapshot_id, "volumeHandle": snapshot.source_volume_id}
    if snapshot.HasField("creation_time"):
        info["creationTime"] = snapshot.creation_time.seconds * _NANO + snapshot.creation_time.nanos
    if snapshot.size_bytes > 0:
        info["restoreSize"] = snapshot.size_bytes
    return info


class GroupSnapshotter:
    """Reconciles contents of groups."""

    def __init__(self, env: Environment, naming: Naming, *, extra_metadata: bool, selector: str = "") -> None:
        """`selector` is a label selector of contents: each node may have its own snapshotter."""
        self._env = env
        self._stored = Contents(
            env,
            _KIND,
            partial(decode, VolumeGroupSnapshotContent),
            VolumeGroupSnapshotContentStatus,
            marked=names.GROUP_BEING_CREATED,
            owners=kinds.VOLUME_GROUP_SNAPSHOTS,
            finalizer=names.GROUP_CONTENT_FINALIZER,
        )
        self._work = Work(is_to_be_deleted, is_ready, self._advance, self._delete)
        self._naming = naming
        self._extra_metadata = extra_metadata
        self._contents = env.manager.informer(
            _KIND, struct=VolumeGroupSnapshotContent, label_selector=selector
        )
        self._classes = env.manager.informer(
            kinds.VOLUME_GROUP_SNAPSHOT_CLASSES, struct=VolumeGroupSnapshotClass
        )
        self._retries = env.retries(lambda: asyncio.get_running_loop().time())
        controller = Controller("csi-group-snapshotter", self.reconcile, workers=env.workers, max_delay=30.0)
        controller.watch(self._contents)
        controller.depend(self._classes)
        env.manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Take, look at or delete the group. Raises StatusError, ConnectionFailed."""
        try:
            content = self._contents.get(*key)
        except UnfitDocument as error:
            logger.error("a group content cannot be decoded, so no snapshot is taken for it: %s", error)
            return DONE
        if content is None:
            self._retries.forget(key)
            return DONE
        if not self._is_ours(content):
            return DONE
        return await self._stored.drive(key, content, self._retries, self._work)

    def _is_ours(self, content: VolumeGroupSnapshotContent) -> bool:
        source = content.spec.source
        has_source = bool(source.volume_handles) or source.group_snapshot_handles is not None
        return has_source and content.spec.driver == self._env.identity.name

    # Taking a group.

    async def _advance(self, content: VolumeGroupSnapshotContent) -> bool:
        """Take the group, or look how far it is; gives whether it is ready."""
        is_new = bool(content.spec.source.volume_handles) and content.status is None
        reason, text = ("GroupSnapshotCreationFailed", "Failed to create group snapshot")
        if not is_new:
            reason = "GroupSnapshotContentCheckandUpdateFailed"
            text = "Failed to check and update group snapshot content"
        try:
            if content.spec.source.group_snapshot_handles is not None:
                return await self._look(content)
            return await self._take(content)
        except (Problem, CallError) as problem:
            await self._stored.report(content, reason, f"{text}: {problem}")
            return False

    async def _take(self, content: VolumeGroupSnapshotContent) -> bool:
        """Ask for the group; asking again is how to learn whether it is ready. Raises Problem."""
        spec, uid = content.spec, content.spec.volume_group_snapshot_ref.uid
        volumes = f"failed to take group snapshot of the volumes [{' '.join(spec.source.volume_handles)}]: "
        if not uid:
            text = "cannot create group snapshot. Group snapshot content {} not bound to a group snapshot"
            raise Problem(volumes + go_quote(text.format(content.metadata.name)))
        passed, secrets = await self._input(content)
        if await self._stored.is_abandoned(content, content.spec.volume_group_snapshot_ref):
            return True
        marked = await self._stored.mark(content, present=True)
        if marked is None:
            return True
        values: dict[str, Any] = {
            "name": self._naming.of(uid),
            "source_volume_ids": list(spec.source.volume_handles),
            "parameters": passed,
            "secrets": secrets,
        }
        try:
            answer = await self._env.group_controller("CreateVolumeGroupSnapshot", values)
        except CallError as error:
            if error.is_final_or_full:
                await self._stored.mark(marked, present=False)
            raise Problem(volumes + go_quote(str(error))) from error
        group = answer.group_snapshot
        if not group.group_snapshot_id or not all(each.snapshot_id for each in group.snapshots):
            raise Problem("the CSI driver returned a group snapshot, or a snapshot in it, without an ID")
        if not group.snapshots:
            raise Problem("the CSI driver returned a group snapshot without snapshots")
        status = new_status(marked, group, group.group_snapshot_id, with_members=True)
        written = await self._stored.change(marked, status)
        if written is not None:
            await self._stored.mark(written, present=False)
        return bool(group.ready_to_use)

    async def _input(self, content: VolumeGroupSnapshotContent) -> tuple[dict[str, str], dict[str, str]]:
        """The parameters and secrets for taking the group. Raises Problem."""
        name, class_name = content.metadata.name, content.spec.volume_group_snapshot_class_name
        found = self._classes.get(None, class_name or "")
        if found is None:
            missing = f"failed to take group snapshot {name} without a group snapshot class"
            if class_name is not None:
                missing = f'volumegroupsnapshotclass.groupsnapshot.storage.k8s.io "{class_name}" not found'
            text = (
                f"failed to get input parameters to create group snapshot for group snapshot content {name}: "
            )
            raise Problem(text + go_quote(missing))
        secrets = await self._secrets(content)
        passed = parameters.for_driver(found.parameters, parameters.SNAPSHOT_CLASS_KEYS)
        if self._extra_metadata:
            reference = content.spec.volume_group_snapshot_ref
            passed[parameters.PREFIX + "volumegroupsnapshot/name"] = reference.name or ""
            passed[parameters.PREFIX + "volumegroupsnapshot/namespace"] = reference.namespace or ""
            passed[parameters.PREFIX + "volumegroupsnapshotcontent/name"] = name
        return passed, secrets

    async def _look(self, content: VolumeGroupSnapshotContent) -> bool:
        """How far a group is that exists already. Raises Problem."""
        given = content.spec.source.group_snapshot_handles
        handle = given.volume_group_snapshot_handle if given is not None else ""
        values: dict[str, Any] = {
            "group_snapshot_id": handle,
            "snapshot_ids": snapshot_handles(content),
            "secrets": await self._get_secrets(content),
        }
        try:
            answer = await self._env.group_controller("GetVolumeGroupSnapshot", values)
        except CallError as error:
            name = content.metadata.name
            text = f"failed to list group snapshot for group snapshot content {name}: {go_quote(str(error))}"
            raise Problem(text) from error
        group = answer.group_snapshot
        await self._stored.change(content, new_status(content, group, handle, with_members=False))
        return bool(group.ready_to_use)

    # Secrets.

    async def _secrets(self, content: VolumeGroupSnapshotContent) -> dict[str, str]:
        """What the driver needs to know for taking and deleting. Raises Problem."""
        keys = names.GROUP_SECRET_NAME, names.GROUP_SECRET_NAMESPACE
        what = f"group snapshot content {go_quote(content.metadata.name)}"
        return await read_annotated_secret(self._env.client, content.metadata.annotations, keys, what)

    async def _get_secrets(self, content: VolumeGroupSnapshotContent) -> dict[str, str]:
        name = content.spec.volume_group_snapshot_class_name
        if name is None:
            return {}
        found = self._classes.get(None, name)
        if found is None:
            raise Problem(
                f"failed to get group snapshot class {name} for group snapshot content "
                f"{content.metadata.name}: "
                f'volumegroupsnapshotclass.groupsnapshot.storage.k8s.io "{name}" not found'
            )
        tokens = {"volumegroupsnapshotcontent.name": content.metadata.name}
        keys = parameters.GROUP_SNAPSHOTTER_GET
        reference = parameters.secret_reference(keys, found.parameters, tokens, tokens)
        return await read_secret(self._env.client, reference)

    # Deleting.

    async def _delete(self, content: VolumeGroupSnapshotContent) -> bool:
        """Delete the group if its policy says so, and let the content go; gives whether that is done."""
        handle = content.status.volume_group_snapshot_handle if content.status is not None else None
        if content.spec.deletion_policy == "Delete" and handle:
            try:
                secrets = await self._secrets(content)
            except Problem as problem:
                return self._stored.undeleted(
                    content, _UNDELETED, f"Failed to get snapshot credentials: {problem}"
                )
            values: dict[str, Any] = {
                "group_snapshot_id": handle,
                "snapshot_ids": snapshot_handles(content),
                "secrets": secrets,
            }
            try:
                await self._env.group_controller("DeleteVolumeGroupSnapshot", values)
            except CallError as error:
                return self._stored.undeleted(
                    content, _UNDELETED, f"Failed to delete group snapshot: {error}"
                )
        await self._stored.let_go(content)
        return True
