"""Volumes that nobody claims any more are deleted, with their storage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kubecore.errors import StatusError, is_not_found
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import PERSISTENT_VOLUMES, STORAGE_CLASSES, VOLUME_ATTACHMENTS
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import storage_labels as names
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import (
    PersistentVolume,
    PersistentVolumeClaim,
    SecretReference,
    StorageClass,
    VolumeAttachment,
)
from virtplane.cluster.objects import finalizer_patch
from virtplane.storage.csi import parameters, requests, topology
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import Environment, Problem, delete, patch, read_secret

logger = logging.getLogger(__name__)

_BY_VOLUME = "volume"


def is_for(volume: PersistentVolume, driver: str) -> bool:
    """Whether a volume is the driver's to delete."""
    annotations = volume.metadata.annotations
    if names.PROVISIONED_BY in annotations:
        return driver in (annotations[names.PROVISIONED_BY], annotations.get(names.MIGRATED_TO))
    return volume.spec.csi is not None and volume.spec.csi.driver == driver


def wants_finalizer(volume: PersistentVolume) -> bool:
    """Whether the volume must not go before its storage: the finalizer is there, or not, accordingly."""
    has = names.VOLUME_FINALIZER in volume.metadata.finalizers
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy in ("Retain", "Recycle"):
        return False
    if policy == "Delete" and not volume.metadata.is_being_deleted and volume.status.phase == "Bound":
        return True
    return has


def is_to_be_deleted(volume: PersistentVolume) -> bool:
    """Whether the storage is no longer wanted."""
    if volume.metadata.is_being_deleted and names.VOLUME_FINALIZER not in volume.metadata.finalizers:
        return False
    return volume.status.phase == "Released" and volume.spec.persistent_volume_reclaim_policy == "Delete"


class Deletion:
    """Reconciles volumes."""

    def __init__(self, env: Environment, node_topology: Mapping[str, str] | None) -> None:
        """`node_topology`: only volumes that can be reached from there are deleted; None for all."""
        self._env = env
        self._node_topology = node_topology
        manager = env.manager
        self._volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        self._classes = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        self._retries = env.retries(lambda: asyncio.get_running_loop().time())
        controller = Controller("csi-volume-deletion", self.reconcile, workers=env.workers, max_delay=30.0)
        controller.watch(self._volumes)
        controller.depend(self._classes)
        self._checks_attachments = "PUBLISH_UNPUBLISH_VOLUME" in env.identity.controller
        if self._checks_attachments:
            self._attachments = manager.informer(
                VOLUME_ATTACHMENTS, struct=VolumeAttachment, indexers={_BY_VOLUME: _volume_names}
            )
            controller.watch(self._attachments, lambda each: [("", name) for name in _volume_names(each)])
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Keep the volume's finalizer, and delete its storage. Raises StatusError, ConnectionFailed."""
        try:
            volume = self._volumes.get(*key)
        except UnfitDocument as error:
            logger.error("a volume cannot be decoded, so it is left alone: %s", error)
            return DONE
        if volume is None:
            self._retries.forget(key)
            return DONE
        if not is_for(volume, self._env.identity.name):
            return DONE
        if self._node_topology is not None and not topology.is_accessible(
            volume.spec.node_affinity, self._node_topology
        ):
            return DONE
        operations = finalizer_patch(volume.metadata, names.VOLUME_FINALIZER, present=wants_finalizer(volume))
        if operations:
            await patch(self._env.client, PERSISTENT_VOLUMES, volume, operations)
            return DONE
        if not is_to_be_deleted(volume):
            return DONE
        wish = self._attached_to(volume)
        if delay := self._retries.remaining(key, wish):
            return RequeueAfter(delay)
        try:
            await self._delete(volume)
        except (Problem, CallError) as problem:
            self._env.event(volume, "Warning", "VolumeFailedDelete", str(problem))
            return RequeueAfter(self._retries.failed(key, wish))
        self._retries.forget(key)
        return DONE

    async def _delete(self, cached: PersistentVolume) -> None:
        """Delete storage and volume. Raises Problem, CallError, StatusError."""
        volume = await self._live(cached)
        if volume is None:
            return
        if volume.spec.csi is None:
            raise Problem("invalid CSI PV")
        requests.check_driver(self._env.identity, restores=False, clones=False, has_attributes=False)
        if node := self._attached_to(volume):
            raise Problem(f"persistentvolume {volume.metadata.name} is still attached to node {node}")
        secrets = await self._secrets(volume)
        values = {"volume_id": volume.spec.csi.volume_handle, "secrets": secrets}
        await self._env.controller("DeleteVolume", values)
        await delete(self._env.client, PERSISTENT_VOLUMES, volume)
        rest = await self._read(volume)
        if rest is not None and rest.metadata.uid == volume.metadata.uid:
            operations = finalizer_patch(rest.metadata, names.VOLUME_FINALIZER, present=False)
            await patch(self._env.client, PERSISTENT_VOLUMES, rest, operations)

    async def _live(self, cached: PersistentVolume) -> PersistentVolume | None:
        """The volume as it is now, if its storage is still to be deleted: the cache may be old."""
        volume = await self._read(cached)
        if volume is None or volume.metadata.uid != cached.metadata.uid or not is_to_be_deleted(volume):
            return None
        return volume

    async def _read(self, volume: PersistentVolume) -> PersistentVolume | None:
        try:
            found = await self._env.client.get(PERSISTENT_VOLUMES, volume.metadata.name)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise
        return decode(PersistentVolume, found)

    def _attached_to(self, volume: PersistentVolume) -> str:
        if not self._checks_attachments:
            return ""
        found = self._attachments.by_index(_BY_VOLUME, volume.metadata.name)
        return found[0].spec.node_name if found else ""

    async def _secrets(self, volume: PersistentVolume) -> dict[str, str]:
        """What the driver needs to know for deleting; a secret that is gone already does not stop it."""
        try:
            return await read_secret(self._env.client, self._secret_reference(volume))
        except Problem as problem:
            logger.warning("volume %s is deleted without its secret: %s", volume.metadata.name, problem)
            return {}

    def _secret_reference(self, volume: PersistentVolume) -> SecretReference | None:
        annotations = volume.metadata.annotations
        keys = (names.DELETION_SECRET_NAME, names.DELETION_SECRET_NAMESPACE)
        if all(key in annotations for key in keys):
            name, namespace = (annotations[key] for key in keys)
            return SecretReference(name=name, namespace=namespace) if name and namespace else None
        storage_class = self._classes.get(None, volume.spec.storage_class_name)
        reference = volume.spec.claim_ref
        if storage_class is None or reference is None:
            return None
        claim = PersistentVolumeClaim(metadata=ObjectMeta(name=reference.name, namespace=reference.namespace))
        return requests.secret_for(
            parameters.PROVISIONER, storage_class.parameters, volume.metadata.name, claim
        )


def _volume_names(attachment: VolumeAttachment) -> list[str]:
    name = attachment.spec.source.persistent_volume_name
    return [name] if name else []
