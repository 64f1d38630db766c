"""Keeps a StorageProfile for each storage class."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists
from kubecore.objects import times
from kubecore.objects.structs import UnfitDocument, encode
from kubecore.resources import PERSISTENT_VOLUMES, STORAGE_CLASSES
from kubecore.runtime import DONE, Controller, Informer, Key, Manager, Result
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolume, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshotClass
from virtplane.cluster.objects import status_patch
from virtplane.storage.cdi.controller.installation import active, owner_reference, singleton_labels
from virtplane.storage.cdi.controller.profiles import decisions
from virtplane.storage.cdi.controller.profiles.decisions import Facts, ProfileInvalid
from virtplane.storage.csi.parts import delete, members_patch, patch, versioned

logger = logging.getLogger(__name__)

NAME = "storageprofile-controller"


class ProfileController:
    """Reconciles profiles, by the names of their storage classes."""

    def __init__(self, client: Client, manager: Manager) -> None:
        self._client = client
        self._classes = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        self._profiles = manager.informer(kinds.STORAGE_PROFILES, struct=StorageProfile)
        self._snapshot_classes = manager.informer(kinds.VOLUME_SNAPSHOT_CLASSES, struct=VolumeSnapshotClass)
        self._volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        self._installations: Informer[CDI] = manager.informer(kinds.CDIS, struct=CDI)
        controller = Controller(NAME, self.reconcile, workers=2, max_delay=60.0)
        controller.watch(self._classes)
        controller.watch(self._profiles)
        controller.watch(self._snapshot_classes, self._of_driver)
        controller.watch(self._volumes, self._of_volume)
        controller.watch(self._installations, lambda _: _keys(self._classes.list()))
        manager.add(controller)

    def _of_driver(self, found: VolumeSnapshotClass) -> list[Key]:
        return _keys(each for each in self._classes.list() if each.provisioner == found.driver)

    def _of_volume(self, volume: PersistentVolume) -> list[Key]:
        storage_class = self._classes.get("", volume.spec.storage_class_name)
        return _keys([storage_class] if _is_static(storage_class) else [])

    async def reconcile(self, key: Key) -> Result:
        """Make, change or remove the profile of a storage class. Raises StatusError, ConnectionFailed."""
        try:
            found, profile = self._classes.get(*key), self._profiles.get(*key)
        except UnfitDocument as error:
            logger.error("a storage profile or its class cannot be decoded, so it stays as it is: %s", error)
            return DONE
        installation = active(self._installations)
        if found is None or found.metadata.is_being_deleted:
            if profile is not None:
                await delete(self._client, kinds.STORAGE_PROFILES, profile)
            return DONE
        if installation is None:
            return DONE  # the CDI object brings all classes back
        if profile is None:
            await self._create(found, installation)
        elif not profile.metadata.is_being_deleted:
            await self._update(profile, self._facts(found), installation)
        return DONE

    async def _create(self, found: StorageClass, installation: CDI) -> None:
        """Create an empty profile, whose event brings it here again."""
        metadata = {
            "name": found.metadata.name,
            "labels": singleton_labels(installation),
            "ownerReferences": [encode(owner_reference(installation))],
        }
        kind = kinds.STORAGE_PROFILES
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}}
        try:
            await self._client.create(kind, document)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    async def _update(self, profile: StorageProfile, facts: Facts, installation: CDI) -> None:
        try:
            status = decisions.wanted_status(profile, facts, times.now_rfc3339())
        except ProfileInvalid as error:
            logger.error("storage profile %s stays as it is: %s", profile.metadata.name, error)
            return
        kind = kinds.STORAGE_PROFILES
        metadata = _metadata_patch(profile, facts, singleton_labels(installation))
        if metadata:
            await patch(self._client, kind, profile, metadata)
            return  # its event brings the profile back
        changes = status_patch(profile, type(status), profile.status, encode(status))
        await patch(self._client, kind, profile, changes, "status")

    def _facts(self, found: StorageClass) -> Facts:
        volumes: tuple[PersistentVolume, ...] = ()
        if _is_static(found):
            name = found.metadata.name
            volumes = tuple(each for each in self._volumes.list() if each.spec.storage_class_name == name)
        snapshot_classes = self._snapshot_classes.list()
        return Facts(found, tuple(snapshot_classes), volumes)


def _metadata_patch(profile: StorageProfile, facts: Facts, labels: dict[str, str]) -> list[dict[str, object]]:
    """The operations that give the profile its labels and annotations; none where it has them."""
    before = {
        "annotations": dict(profile.metadata.annotations),
        "labels": dict(profile.metadata.labels),
    }
    annotations = {**before["annotations"], **decisions.wanted_annotations(profile, facts)}
    after = {
        "annotations": {name: value for name, value in annotations.items() if value is not None},
        "labels": {**before["labels"], **labels},
    }
    return versioned(profile, members_patch("/metadata", before, after))


def _keys(classes: Iterable[StorageClass | None]) -> list[Key]:
    return [("", each.metadata.name) for each in classes if each is not None]


def _is_static(found: StorageClass | None) -> bool:
    return found is not None and found.provisioner == decisions.NO_PROVISIONER
