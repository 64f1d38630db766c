"""The controller of VolumeGroupSnapshotContents, on the side of their groups."""

from __future__ import annotations

import logging

from kubecore.client import Client
from kubecore.objects.structs import UnfitDocument
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, Result
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.volumegroupsnapshot_v1 import VolumeGroupSnapshotContent
from virtplane.cluster.objects import described, finalizer_patch
from virtplane.storage.csi.contents import is_there
from virtplane.storage.csi.parts import annotations_patch, delete, patch, versioned

logger = logging.getLogger(__name__)

_KIND = kinds.VOLUME_GROUP_SNAPSHOT_CONTENTS


class GroupContentController:
    """Reconciles contents of groups."""

    def __init__(self, client: Client, manager: Manager, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder
        self._contents = manager.informer(_KIND, struct=VolumeGroupSnapshotContent)
        controller = Controller("group-snapshot-contents", self.reconcile, max_delay=60.0)
        controller.watch(self._contents)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Keep the content, or let it go with its group. Raises StatusError, ConnectionFailed."""
        try:
            content = self._contents.get(*key)
        except UnfitDocument as error:
            logger.error("a group content cannot be decoded, so it is left alone: %s", error)
            return DONE
        if content is None:
            return DONE
        source = content.spec.source
        if bool(source.volume_handles) == (source.group_snapshot_handles is not None):
            text = "Exactly one of GroupSnapshotHandles and VolumeHandles should be specified"
            self._recorder.event(described(content), "Warning", "GroupContentValidationError", text)
            return DONE
        if not content.spec.volume_group_snapshot_ref.uid:
            return DONE  # no group has taken it yet
        if not content.metadata.is_being_deleted:
            operations = finalizer_patch(content.metadata, names.GROUP_CONTENT_FINALIZER, present=True)
            if operations:
                await patch(self._client, _KIND, content, operations)
                return DONE
        was_asked_for = not _was_never_asked_for(content)
        is_unwanted = names.GROUP_BEING_DELETED in content.metadata.annotations
        if content.metadata.is_being_deleted and is_unwanted and not was_asked_for:
            # Whoever would ask writes that down first, at this very version. There may be no such driver.
            finalizer = names.GROUP_CONTENT_FINALIZER
            operations = versioned(content, finalizer_patch(content.metadata, finalizer, present=False))
            await patch(self._client, _KIND, content, operations)
            return DONE
        is_kept = was_asked_for or content.spec.deletion_policy != "Delete"
        if not content.metadata.is_being_deleted and is_kept:
            return DONE
        group = content.spec.volume_group_snapshot_ref
        if await is_there(self._client, kinds.VOLUME_GROUP_SNAPSHOTS, group):
            return DONE  # the group's controller does what is to be done
        await mark_deleted(self._client, content)
        if not content.metadata.is_being_deleted:
            await delete(self._client, _KIND, content)  # the group went while this was being created
        return DONE


def _was_never_asked_for(content: VolumeGroupSnapshotContent) -> bool:
    return (
        bool(content.spec.source.volume_handles)
        and content.status is None
        and names.GROUP_BEING_CREATED not in content.metadata.annotations
    )


async def mark_deleted(client: Client, content: VolumeGroupSnapshotContent) -> None:
    """Tell the driver's side that the group is no longer wanted. Raises StatusError."""
    operations = annotations_patch(content, {names.GROUP_BEING_DELETED: "yes"})
    await patch(client, _KIND, content, operations)
