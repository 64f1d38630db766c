"""What DataVolumes are clones of, also where a DataSource says it."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.runtime import Informer, Manager
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.data_source import DataSource, DataSourceSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeSource
from virtplane.storage.cdi.clone_rights import SourceKind
from virtplane.storage.cdi.controller.clones.sources import Source

BY_REFERENCE = "data source"
"""DataVolumes by ``namespace/name`` of the DataSource that they name."""


class References:
    """Reads DataSources from a cache."""

    def __init__(self, manager: Manager) -> None:
        self.informer: Informer[DataSource] = manager.informer(resources.DATA_SOURCES, struct=DataSource)

    def source(self, volume: DataVolume) -> Source | None:
        """What a DataVolume is a clone of; None for none, and while nobody knows. Raises UnfitDocument."""
        found: DataVolumeSource | DataSourceSource | None = volume.spec.source
        for name in references_of(volume):
            found = self._meant(*name.split("/", 1))
        if found is None:
            return None
        own = volume.metadata.namespace
        if found.pvc is not None:
            return Source(SourceKind.CLAIM, found.pvc.namespace or own, found.pvc.name)
        if found.snapshot is not None:
            return Source(SourceKind.SNAPSHOT, found.snapshot.namespace or own, found.snapshot.name)
        return None

    def _meant(self, namespace: str, name: str) -> DataSourceSource | None:
        source = self.informer.get(namespace, name)
        if source is None:
            return None
        return source.status.source if source.spec.source.data_source is not None else source.spec.source


def references_of(volume: DataVolume) -> Iterable[str]:
    """Index function: the DataSource that a DataVolume names."""
    reference = volume.spec.source_ref
    if reference is None or reference.kind != resources.DATA_SOURCES.kind or not reference.name:
        return ()
    return (f"{reference.namespace or volume.metadata.namespace}/{reference.name}",)


def sources_of(volume: DataVolume) -> Iterable[str]:
    """Index function: the claim or snapshot that a DataVolume names itself."""
    source = volume.spec.source
    if source is None:
        return ()
    named = source.pvc or source.snapshot
    return (f"{named.namespace or volume.metadata.namespace}/{named.name}",) if named is not None else ()
