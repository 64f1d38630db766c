"""Finds out how large the disk image in the source of a clone is."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubecore.runtime import EventKind, EventRecorder
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import described
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.clones.lookups import Lookups
from virtplane.storage.cdi.controller.clones.readiness import SOURCE_IN_USE
from virtplane.storage.cdi.controller.datavolume import clone_sizes
from virtplane.storage.cdi.controller.pods.size_detection import CONTAINER, size_detection_pod
from virtplane.storage.cdi.controller.workers.pods import Pod
from virtplane.storage.csi.parts import annotations_patch, delete, patch

POD_CREATED = ("SizeDetectionPodCreated", "Size-detection pod created")
POD_NOT_READY = ("SizeDetectionPodNotReady", "The size detection pod is not finished yet")
SOURCE_NOT_READY = ("ImportPVCNotReady", "The source PVC is not fully imported")
_FAILURES = {1: "ErrBadArguments", 2: "ErrInvalidFile", 3: "ErrInvalidPath", 4: "ErrBadTermFile"}
_REFUSALS = frozenset({400, 403, 422})


class NotDetected(Exception):
    """The pod cannot be made. The text is the API server's."""


@dataclass(frozen=True, slots=True)
class Detection:
    """Runs size-detection pods. All methods raise StatusError, ConnectionFailed and UnfitDocument."""

    client: Client
    recorder: EventRecorder
    lookups: Lookups

    async def size(self, volume: DataVolume, source: PersistentVolumeClaim) -> int | None:
        """The bytes of the image in `source`, or the room where there is none; None while nobody knows.

        Raises NotDetected.
        """
        if not clone_sizes.holds_image(source):
            return clone_sizes.capacity(source)
        known = clone_sizes.remembered_size(source)
        if known is not None:
            await self._remove(volume, source)
            return known
        self._tell_users(volume, source)
        if not self.lookups.is_populated(source) or not claims.is_bound(source):
            self._tell(volume, "Normal", *SOURCE_NOT_READY)
            return None
        pod = self._pod(source)
        if pod is None:
            await self._start(volume, source)
        elif pod.status.phase == claims.SUCCEEDED:
            await self._remember(volume, source, pod)
        elif pod.status.phase == claims.FAILED:
            await self._drop(pod)
        else:
            self._tell_problem(volume, pod)
        return None  # the events of the pod and of the source bring the DataVolume back

    def _pod(self, source: PersistentVolumeClaim) -> Pod | None:
        name = cdi_names.size_detection_pod(source.metadata.uid)
        return self.lookups.pods.get(source.metadata.namespace, name)

    async def _start(self, volume: DataVolume, source: PersistentVolumeClaim) -> None:
        document = size_detection_pod(self.lookups.settings.workers(), volume, source)
        try:
            await self.client.create(PODS, document, source.metadata.namespace)
        except StatusError as error:
            if is_already_exists(error):
                return
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            raise NotDetected(error.message) from error
        self._tell(volume, "Normal", *POD_CREATED)

    async def _remember(self, volume: DataVolume, source: PersistentVolumeClaim, pod: Pod) -> None:
        """Write the size into the source, so that nobody need look again."""
        status = pod.container(CONTAINER)
        ended = status.state.terminated if status is not None else None
        size = clone_sizes.image_size(ended.message) if ended is not None and not ended.exit_code else None
        capacity = source.status.capacity.get("storage")
        if size is None or capacity is None:
            self._tell_failure(volume, ended.exit_code if ended is not None else 0)
            await self._drop(pod)
            return
        found = {names.VIRTUAL_SIZE: str(size), names.SOURCE_CAPACITY: str(capacity)}
        await patch(self.client, PERSISTENT_VOLUME_CLAIMS, source, annotations_patch(source, found))

    async def _remove(self, volume: DataVolume, source: PersistentVolumeClaim) -> None:
        """Delete the pod once it is needed no more, if it is of this DataVolume."""
        pod = self._pod(source)
        if pod is None or claims.is_true(volume.metadata, names.POD_RETAIN):
            return
        if is_of(pod, volume):
            await self._drop(pod)

    async def _drop(self, pod: Pod) -> None:
        if not pod.metadata.is_being_deleted:
            await delete(self.client, PODS, pod)

    def _tell_users(self, volume: DataVolume, source: PersistentVolumeClaim) -> None:
        users = self.lookups.users(source)
        own = cdi_names.size_detection_pod(source.metadata.uid)
        for pod in users.all():
            if pod.metadata.name != own:
                self._tell(volume, "Warning", SOURCE_IN_USE, users.in_use(pod))

    def _tell_problem(self, volume: DataVolume, pod: Pod) -> None:
        """A container that fails is started again."""
        status = pod.container(CONTAINER)
        ended = (status.state.terminated or status.last_state.terminated) if status is not None else None
        if ended is not None and ended.exit_code:
            self._tell_failure(volume, ended.exit_code)
        else:
            self._tell(volume, "Normal", *POD_NOT_READY)

    def _tell_failure(self, volume: DataVolume, code: int) -> None:
        reason = _FAILURES.get(code, "ErrUnknown")
        self._tell(volume, "Warning", reason, f"Size-detection pod failed due to {reason}")

    def _tell(self, volume: DataVolume, kind: EventKind, reason: str, text: str) -> None:
        self.recorder.event(described(volume), kind, reason, text)


def is_of(pod: Pod, volume: DataVolume) -> bool:
    """Whether the pod was made for this DataVolume."""
    if pod.metadata.controller is not None:
        return pod.metadata.is_controlled_by(volume.metadata)
    return pod.metadata.annotations.get(names.OWNER_UID) == volume.metadata.uid
