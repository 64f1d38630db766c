"""Keeps status and labels of DataSources."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, Key, Manager, Result
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.data_source import DataSource, DataSourceSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster.caches import HasMetadata
from virtplane.storage.cdi.controller.datasources import decisions
from virtplane.storage.cdi.controller.datasources.decisions import Verdict
from virtplane.storage.cdi.controller.datasources.status import status_changes
from virtplane.storage.csi.parts import members_patch, patch, versioned

logger = logging.getLogger(__name__)

NAME = "datasource-controller"
_BY_CLAIM, _BY_SNAPSHOT, _BY_REFERENCE = "claim", "snapshot", "reference"


def _claim_of(source: DataSource) -> list[str]:
    claim = source.spec.source.pvc
    return [f"{claim.namespace or source.metadata.namespace}/{claim.name}"] if claim is not None else []


def _snapshot_of(source: DataSource) -> list[str]:
    snapshot = source.spec.source.snapshot
    if snapshot is None:
        return []
    return [f"{snapshot.namespace or source.metadata.namespace}/{snapshot.name}"]


def _reference_of(source: DataSource) -> list[str]:
    reference = source.spec.source.data_source
    return [f"{source.metadata.namespace}/{reference.name}"] if reference is not None else []


class DataSourceController:
    """Reconciles DataSources."""

    def __init__(self, client: Client, manager: Manager) -> None:
        self._client = client
        indexers = {_BY_CLAIM: _claim_of, _BY_SNAPSHOT: _snapshot_of, _BY_REFERENCE: _reference_of}
        self._sources = manager.informer(kinds.DATA_SOURCES, struct=DataSource, indexers=indexers)
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        self._data_volumes = manager.informer(kinds.DATA_VOLUMES, struct=DataVolume)
        self._snapshots = manager.informer(kinds.VOLUME_SNAPSHOTS, struct=VolumeSnapshot)
        controller = Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(self._sources)
        controller.watch(self._sources, self._referring)
        controller.watch(self._claims, lambda found: self._standing_for(_BY_CLAIM, found))
        controller.watch(self._data_volumes, lambda found: self._standing_for(_BY_CLAIM, found))
        controller.watch(self._snapshots, lambda found: self._standing_for(_BY_SNAPSHOT, found))
        manager.add(controller)

    def _standing_for(self, index: str, found: HasMetadata) -> list[Key]:
        """The DataSources that lead to `found`, directly or by another one."""
        direct = self._sources.by_index(index, f"{found.metadata.namespace}/{found.metadata.name}")
        return [*_keys(direct), *(key for source in direct for key in self._referring(source))]

    def _referring(self, source: DataSource) -> list[Key]:
        name = f"{source.metadata.namespace}/{source.metadata.name}"
        return _keys(self._sources.by_index(_BY_REFERENCE, name))

    async def reconcile(self, key: Key) -> Result:
        """Bring a DataSource's status and labels up to date. Raises StatusError, ConnectionFailed."""
        try:
            source = self._sources.get(*key)
            if source is None or source.metadata.is_being_deleted:
                return DONE
            content, verdict = self._verdict(source)
        except UnfitDocument as error:
            logger.error(
                "DataSource %s/%s stays as it is until what it leads to is corrected: %s", *key, error
            )
            return DONE
        await patch(self._client, kinds.DATA_SOURCES, source, _changes(source, content, verdict))
        return DONE

    def _verdict(self, source: DataSource) -> tuple[DataSourceSource, Verdict]:
        """What the DataSource leads to in the end, and whether that can be used. Raises UnfitDocument."""
        content = source.spec.source
        namespace = source.metadata.namespace
        refusal = decisions.reference_refusal(source)
        if refusal is None and content.data_source is not None:
            target = self._sources.get(namespace, content.data_source.name)
            refusal = decisions.chain_refusal(content.data_source.name, target)
            content = target.spec.source if target is not None else content
        if refusal is not None:
            return DataSourceSource(), refusal
        return content, self._of_content(content, namespace)

    def _of_content(self, content: DataSourceSource, own_namespace: str) -> Verdict:
        if content.pvc is not None:
            key = (content.pvc.namespace or own_namespace, content.pvc.name)
            return decisions.of_claim(self._claims.get(*key), self._data_volumes.get(*key))
        if content.snapshot is not None:
            namespace = content.snapshot.namespace or own_namespace
            return decisions.of_snapshot(self._snapshots.get(namespace, content.snapshot.name))
        return decisions.NO_SOURCE


def _changes(source: DataSource, content: DataSourceSource, verdict: Verdict) -> list[JsonObject]:
    """The operations that give the DataSource its labels and its status; none where it has them."""
    before = dict(source.metadata.labels)
    labels = {"labels": {**before, **verdict.labels}}
    changes = versioned(source, members_patch("/metadata", {"labels": before}, labels))
    return [*changes, *status_changes(source, content, verdict)]


def _keys(sources: Iterable[DataSource]) -> list[Key]:
    return [(each.metadata.namespace, each.metadata.name) for each in sources]
