"""Reading what a claim is to be filled from, and keeping that until it is copied."""

from __future__ import annotations

import logging
from typing import Any

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import get_list
from kubecore.objects.structs import decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from kubecore.runtime import Informer
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent
from virtplane.cluster.objects import finalizer_patch
from virtplane.storage.csi import content_sources
from virtplane.storage.csi.content_sources import DataSource
from virtplane.storage.csi.parts import Problem, patch

logger = logging.getLogger(__name__)

_REFERENCE_GRANTS = ResourceType("gateway.networking.k8s.io", "v1beta1", "referencegrants", "ReferenceGrant")


class FilledByOthers(Exception):
    """Somebody else will fill the claim; the text says who, for its user."""


class Sources:
    """The sources of new volumes. Snapshots are read when they are needed: few claims name one."""

    def __init__(
        self,
        client: Client,
        claims: Informer[PersistentVolumeClaim],
        volumes: Informer[PersistentVolume],
        *,
        across_namespaces: bool,
        keeps_mode: bool,
    ) -> None:
        self._client = client
        self._claims = claims
        self._volumes = volumes
        self._across_namespaces = across_namespaces
        self._keeps_mode = keeps_mode

    async def of(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> dict[str, Any] | None:
        """CSI's VolumeContentSource; the source cannot go away from here on.

        Raises Problem, FilledByOthers.
        """
        source = content_sources.data_source(claim, across_namespaces=self._across_namespaces)
        if source is None:
            return None
        if not source.name:
            raise Problem(f"the PVC source not found for PVC {claim.metadata.name}")
        if source.is_snapshot and source.group != content_sources.SNAPSHOT_GROUP:
            raise Problem(
                "the PVC source does not belong to the right APIGroup. Expected "
                f"{content_sources.SNAPSHOT_GROUP}, Got {source.group}"
            )
        if not source.is_snapshot and not source.is_claim:
            raise FilledByOthers("Assuming an external populator will provision the volume")
        if source.namespace != claim.metadata.namespace:
            await self._check_grant(claim, source)
        try:
            if source.is_claim:
                return await self._copied(claim, storage_class, source)
            return await self._restored(claim, storage_class, source)
        except Problem as problem:
            raise Problem(
                f"error getting handle for DataSource Type {source.kind} by Name {source.name}: {problem}"
            ) from problem

    async def _check_grant(self, claim: PersistentVolumeClaim, source: DataSource) -> None:
        try:
            found = await self._client.list(_REFERENCE_GRANTS, source.namespace)
        except StatusError as error:
            raise Problem(
                f"error getting ReferenceGrants in {source.namespace} namespace from api server: "
                f"{error.message}"
            ) from error
        if not content_sources.is_granted(claim, source, get_list(found, "items")):
            raise Problem(
                f"accessing {source.namespace}/{source.name} of {source.kind} dataSource from "
                f"{claim.metadata.namespace}/{claim.metadata.name} isn't allowed"
            )

    async def _copied(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, source: DataSource
    ) -> dict[str, Any]:
        original = self._claims.get(source.namespace, source.name)
        volume = self._volumes.get(None, original.spec.volume_name or "") if original is not None else None
        content = content_sources.cloned(claim, source.name, original, volume, storage_class)
        assert original is not None  # or there would be a Problem
        operations = finalizer_patch(original.metadata, names.CLONING_PROTECTION, present=True)
        if operations:
            written = await patch(self._client, PERSISTENT_VOLUME_CLAIMS, original, operations)
            if written is None:
                raise Problem(f"the PVC DataSource {source.name} is gone")
        return content

    async def _restored(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, source: DataSource
    ) -> dict[str, Any]:
        client = self._client
        try:
            found = await client.get(kinds.VOLUME_SNAPSHOTS, source.name, source.namespace)
        except StatusError as error:
            raise Problem(f"error getting snapshot {source.name} from api server: {error.message}") from error
        snapshot = decode(VolumeSnapshot, found)
        bound, content = snapshot.status.bound_volume_snapshot_content_name, None
        if bound:
            try:
                found = await client.get(kinds.VOLUME_SNAPSHOT_CONTENTS, bound)
                content = decode(VolumeSnapshotContent, found)
            except StatusError as error:
                if not is_not_found(error):
                    raise
        result = content_sources.restored(
            claim, snapshot, content, storage_class, keeps_mode=self._keeps_mode
        )
        operations = finalizer_patch(snapshot.metadata, names.RESTORING_PROTECTION, present=True)
        try:
            await patch(client, kinds.VOLUME_SNAPSHOTS, snapshot, operations)
        except StatusError as error:
            if error.code != 403:
                raise
            logger.warning(
                "snapshot %s/%s is not protected while %s/%s is made of it; allow patching it: %s",
                source.namespace,
                source.name,
                claim.metadata.namespace,
                claim.metadata.name,
                error.message,
            )
        return result
