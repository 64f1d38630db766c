"""VolumeSnapshotContents become snapshots in the storage, and go with them (the csi-snapshotter).

A content gets an annotation before the driver is asked to take its snapshot, which goes once it is known
whether there is one: until then the content is not deleted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any

from kubecore.objects.fields import go_quote
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.runtime import DONE, Controller, Key, Result
from kubecore.wire import Message
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.volumesnapshot_v1 import (
    VolumeSnapshotClass,
    VolumeSnapshotContent,
    VolumeSnapshotContentStatus,
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

_NANO = 10**9
_UNDELETED = "SnapshotDeleteError"


def is_to_be_deleted(content: VolumeSnapshotContent) -> bool:
    """Whether the snapshot controller, or nobody, needs the content any more."""
    metadata = content.metadata
    if not metadata.is_being_deleted:
        return False
    if content.spec.source.snapshot_handle and not content.spec.volume_snapshot_ref.uid:
        return True
    if names.SNAPSHOT_BEING_CREATED in metadata.annotations:
        return False
    return names.SNAPSHOT_BEING_DELETED in metadata.annotations


def is_ready(content: VolumeSnapshotContent) -> bool:
    """Whether volumes can be made of the snapshot."""
    return content.status is not None and bool(content.status.ready_to_use)


def is_of_group(content: VolumeSnapshotContent) -> bool:
    """Whether the snapshot belongs to a group, which is taken and deleted as a whole."""
    has_handle = content.status is not None and content.status.volume_group_snapshot_handle
    return bool(has_handle) or names.GROUP_SNAPSHOT_HANDLE in content.metadata.annotations


def is_made_by_group(content: VolumeSnapshotContent) -> bool:
    """Whether the controller of groups says how far the snapshot is, and nothing is to be deleted yet."""
    was_given = content.spec.source.snapshot_handle is not None
    return is_of_group(content) and not was_given and not is_to_be_deleted(content)


class Snapshotter:
    """Reconciles contents."""

    def __init__(self, env: Environment, naming: Naming, *, extra_metadata: bool, selector: str = "") -> None:
        """`selector` is a label selector of contents: each node may have its own snapshotter."""
        self._env = env
        self._stored = Contents(
            env,
            kinds.VOLUME_SNAPSHOT_CONTENTS,
            partial(decode, VolumeSnapshotContent),
            VolumeSnapshotContentStatus,
            marked=names.SNAPSHOT_BEING_CREATED,
            owners=kinds.VOLUME_SNAPSHOTS,
            finalizer=names.CONTENT_FINALIZER,
        )
        self._work = Work(is_to_be_deleted, is_ready, self._advance, self._delete)
        self._naming = naming
        self._extra_metadata = extra_metadata
        self._contents = env.manager.informer(
            kinds.VOLUME_SNAPSHOT_CONTENTS, struct=VolumeSnapshotContent, label_selector=selector
        )
        self._classes = env.manager.informer(kinds.VOLUME_SNAPSHOT_CLASSES, struct=VolumeSnapshotClass)
        self._retries = env.retries(lambda: asyncio.get_running_loop().time())
        controller = Controller("csi-snapshotter", self.reconcile, workers=env.workers, max_delay=30.0)
        controller.watch(self._contents)
        controller.depend(self._classes)
        env.manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Take, look at or delete the snapshot. Raises StatusError, ConnectionFailed."""
        try:
            content = self._contents.get(*key)
        except UnfitDocument as error:
            logger.error("a content cannot be decoded, so no snapshot is taken for it: %s", error)
            return DONE
        if content is None:
            self._retries.forget(key)
            return DONE
        if not self._is_ours(content) or is_made_by_group(content):
            return DONE
        return await self._stored.drive(key, content, self._retries, self._work)

    def _is_ours(self, content: VolumeSnapshotContent) -> bool:
        source = content.spec.source
        if content.spec.driver != self._env.identity.name:
            return False
        if source.volume_handle is None and source.snapshot_handle is None:
            return False
        found = self._classes.get(None, content.spec.volume_snapshot_class_name or "")
        return found is None or found.driver == self._env.identity.name

    # Taking a snapshot.

    async def _advance(self, content: VolumeSnapshotContent) -> bool:
        """Take the snapshot, or look how far it is; gives whether it is ready."""
        is_new = content.spec.source.volume_handle is not None and content.status is None
        reason, text = ("SnapshotCreationFailed", "Failed to create snapshot")
        if not is_new:
            reason = "SnapshotContentCheckandUpdateFailed"
            text = "Failed to check and update snapshot content"
        try:
            if content.spec.source.snapshot_handle is not None:
                return await self._look(content)
            return await self._take(content)
        except (Problem, CallError) as problem:
            await self._stored.report(content, reason, f"{text}: {problem}")
            return False

    async def _take(self, content: VolumeSnapshotContent) -> bool:
        """Ask for the snapshot; asking again is how to learn whether it is ready.

        Raises Problem, CallError.
        """
        name, spec = content.metadata.name, content.spec
        handle, uid = spec.source.volume_handle or "", spec.volume_snapshot_ref.uid
        if not uid:
            text = f"cannot create snapshot. Snapshot content {name} not bound to a snapshot"
            raise Problem(f"failed to take snapshot of the volume {handle}: {go_quote(text)}")
        passed = self._parameters(content)
        secrets = await self._secrets(content)
        if await self._stored.is_abandoned(content, content.spec.volume_snapshot_ref):
            return True
        marked = await self._stored.mark(content, present=True)
        if marked is None:
            return True
        values = {
            "source_volume_id": handle,
            "name": self._naming.of(uid),
            "parameters": passed,
            "secrets": secrets,
        }
        try:
            answer = await self._env.controller("CreateSnapshot", values)
        except CallError as error:
            if error.is_final_or_full:
                await self._stored.mark(marked, present=False)
            text = f"failed to take snapshot of the volume {handle}: {go_quote(str(error))}"
            raise Problem(text) from error
        if not answer.snapshot.snapshot_id:
            raise Problem("the CSI driver returned a snapshot without an ID")
        written = await self._write(marked, answer.snapshot, answer.snapshot.snapshot_id)
        if written is not None:
            await self._stored.mark(written, present=False)
        return bool(answer.snapshot.ready_to_use)

    def _parameters(self, content: VolumeSnapshotContent) -> dict[str, str]:
        """What the class of a snapshot passes on to the driver. Raises Problem without a class."""
        name, spec = content.metadata.name, content.spec
        found = self._classes.get(None, spec.volume_snapshot_class_name or "")
        if found is None:
            missing = f"failed to take snapshot {name} without a snapshot class"
            if spec.volume_snapshot_class_name is not None:
                kind = kinds.VOLUME_SNAPSHOT_CLASSES.group_resource.replace("classes", "class", 1)
                missing = f'{kind} "{spec.volume_snapshot_class_name}" not found'
            text = f"failed to get input parameters to create snapshot for content {name}: "
            raise Problem(text + go_quote(missing))
        passed = parameters.for_driver(found.parameters, parameters.SNAPSHOT_CLASS_KEYS)
        if self._extra_metadata:
            reference = spec.volume_snapshot_ref
            passed["csi.storage.k8s.io/volumesnapshot/name"] = reference.name or ""
            passed["csi.storage.k8s.io/volumesnapshot/namespace"] = reference.namespace or ""
            passed["csi.storage.k8s.io/volumesnapshotcontent/name"] = name
        return passed

    async def _look(self, content: VolumeSnapshotContent) -> bool:
        """How far a snapshot is that exists already. Raises Problem, CallError."""
        handle = content.spec.source.snapshot_handle or ""
        if "LIST_SNAPSHOTS" not in self._env.identity.controller:
            # Nobody can say more of it: whoever made the content knows that it is ready.
            await self._write(content, None, handle)
            return True
        values = {"snapshot_id": handle, "secrets": await self._list_secrets(content)}
        try:
            answer = await self._env.controller("ListSnapshots", values)
        except CallError as error:
            text = f"failed to list snapshot for content {content.metadata.name}: {go_quote(str(error))}"
            raise Problem(text) from error
        if not answer.entries:
            missing = f"can not find snapshot for snapshotID {handle}"
            text = f"failed to list snapshot for content {content.metadata.name}: {go_quote(missing)}"
            raise Problem(text)
        snapshot = answer.entries[0].snapshot
        await self._write(content, snapshot, handle)
        return bool(snapshot.ready_to_use)

    async def _write(
        self, content: VolumeSnapshotContent, snapshot: Message | None, handle: str
    ) -> VolumeSnapshotContent | None:
        """The driver's answer into the status; None where the content is gone."""
        ready = snapshot is None or bool(snapshot.ready_to_use)
        moment = 0
        if snapshot is not None and snapshot.HasField("creation_time"):
            moment = snapshot.creation_time.seconds * _NANO + snapshot.creation_time.nanos
        status = encode(content.status) if content.status is not None else {}
        status.setdefault("snapshotHandle", handle)
        status.setdefault("creationTime", moment or time.time_ns())
        if snapshot is not None and snapshot.group_snapshot_id:
            status.setdefault("volumeGroupSnapshotHandle", snapshot.group_snapshot_id)
        if snapshot is not None and snapshot.size_bytes > 0:
            status.setdefault("restoreSize", snapshot.size_bytes)
        status["readyToUse"] = ready
        if ready:
            status.pop("error", None)
        return await self._stored.change(content, status)

    # Secrets.

    async def _secrets(self, content: VolumeSnapshotContent) -> dict[str, str]:
        """What the driver needs to know for taking and deleting. Raises Problem."""
        keys = names.SNAPSHOT_SECRET_NAME, names.SNAPSHOT_SECRET_NAMESPACE
        what = f"snapshot content {go_quote(content.metadata.name)}"
        return await read_annotated_secret(self._env.client, content.metadata.annotations, keys, what)

    async def _list_secrets(self, content: VolumeSnapshotContent) -> dict[str, str]:
        name = content.spec.volume_snapshot_class_name
        if name is None:
            return {}
        found = self._classes.get(None, name)
        if found is None:
            raise Problem(
                f"failed to get snapshot class {name} for snapshot content {content.metadata.name}: "
                f'volumesnapshotclass.snapshot.storage.k8s.io "{name}" not found'
            )
        tokens = {"volumesnapshotcontent.name": content.metadata.name}
        reference = parameters.secret_reference(parameters.SNAPSHOTTER_LIST, found.parameters, tokens, tokens)
        return await read_secret(self._env.client, reference)

    # Deleting.

    async def _delete(self, content: VolumeSnapshotContent) -> bool:
        """Delete the snapshot if its policy says so, and let the content go; gives whether that is done."""
        handle = content.status.snapshot_handle if content.status is not None else None
        if content.spec.deletion_policy == "Delete" and handle and not is_of_group(content):
            try:
                secrets = await self._secrets(content)
            except Problem as problem:
                return self._stored.undeleted(
                    content, _UNDELETED, f"Failed to get snapshot credentials: {problem}"
                )
            try:
                values: dict[str, Any] = {"snapshot_id": handle, "secrets": secrets}
                await self._env.controller("DeleteSnapshot", values)
            except CallError as error:
                return self._stored.undeleted(content, _UNDELETED, f"Failed to delete snapshot: {error}")
            status = encode(content.status) if content.status is not None else {}
            for field in ("snapshotHandle", "readyToUse", "creationTime", "restoreSize"):
                status.pop(field, None)
            written = await self._stored.change(content, status)
            if written is None:
                return True
            content = written
        await self._stored.let_go(content)
        return True
