"""The controller of VolumeSnapshotContents, on the side of their snapshots."""

from __future__ import annotations

import logging

from kubecore.client import Client
from kubecore.objects.structs import UnfitDocument
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, Result
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.volumesnapshot_v1 import VolumeSnapshotContent
from virtplane.cluster.objects import described, finalizer_patch
from virtplane.storage.csi.contents import is_there
from virtplane.storage.csi.parts import delete, patch
from virtplane.storage.volumesnapshot.snapshots import mark_deleted

logger = logging.getLogger(__name__)


class ContentController:
    """Reconciles contents."""

    def __init__(self, client: Client, manager: Manager, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder
        self._contents = manager.informer(kinds.VOLUME_SNAPSHOT_CONTENTS, struct=VolumeSnapshotContent)
        controller = Controller("snapshot-contents", self.reconcile, max_delay=60.0)
        controller.watch(self._contents)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Keep the content, or let it go with its snapshot. Raises StatusError, ConnectionFailed."""
        try:
            content = self._contents.get(*key)
        except UnfitDocument as error:
            logger.error("a content cannot be decoded, so it is left alone: %s", error)
            return DONE
        if content is None:
            return DONE
        source = content.spec.source
        if (source.volume_handle is None) == (source.snapshot_handle is None):
            text = "Exactly one of VolumeHandle and SnapshotHandle should be specified"
            self._recorder.event(described(content), "Warning", "ContentValidationError", text)
            return DONE
        if not content.spec.volume_snapshot_ref.uid:
            return DONE  # no snapshot has taken it yet
        if not content.metadata.is_being_deleted:
            operations = finalizer_patch(content.metadata, names.CONTENT_FINALIZER, present=True)
            if operations:
                await patch(self._client, kinds.VOLUME_SNAPSHOT_CONTENTS, content, operations)
                return DONE
        if not content.metadata.is_being_deleted and not self._was_never_asked_for(content):
            return DONE
        if await is_there(self._client, kinds.VOLUME_SNAPSHOTS, content.spec.volume_snapshot_ref):
            return DONE  # the snapshot's controller does what is to be done
        if content.metadata.is_being_deleted:
            await mark_deleted(self._client, content)
        elif self._was_never_asked_for(content):
            # The snapshot was deleted while this was being created.
            await mark_deleted(self._client, content)
            await delete(self._client, kinds.VOLUME_SNAPSHOT_CONTENTS, content)
        return DONE

    def _was_never_asked_for(self, content: VolumeSnapshotContent) -> bool:
        return (
            content.spec.source.volume_handle is not None
            and content.spec.deletion_policy == "Delete"
            and content.status is None
            and names.SNAPSHOT_BEING_CREATED not in content.metadata.annotations
        )
