"""Which DataVolumes are looked at again when something else has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kubecore.runtime import Informer, Key
from virtplane.api import cdi_labels as names
from virtplane.api import storage_labels
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.cluster.caches import HasMetadata
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.datavolume.references import BY_REFERENCE, references_of, sources_of
from virtplane.storage.cdi.controller.settings import Settings

_BY_SOURCE, _BY_CLASS = "clone source", "class of those without claim"
_NO_CLASS = "*"
"""Stands for the default class in the index; no class can have that name."""
_DEFAULTS = (storage_labels.DEFAULT_CLASS, storage_labels.DEFAULT_VIRT_CLASS)


def _class_without_claim(volume: DataVolume) -> Iterable[str]:
    """Index function: the class that a DataVolume without claim names."""
    wanted = volume.spec.storage if volume.spec.storage is not None else volume.spec.pvc
    if volume.status.claim_name or wanted is None:
        return ()
    return (_NO_CLASS if wanted.storage_class_name is None else wanted.storage_class_name,)


INDEXERS: Mapping[str, Callable[[DataVolume], Iterable[str]]] = {
    BY_REFERENCE: references_of,
    _BY_SOURCE: sources_of,
    _BY_CLASS: _class_without_claim,
}
"""The indexes that the cache of DataVolumes must have."""


class Concerned:
    """Reads the keys of DataVolumes from their cache, by what has changed."""

    def __init__(self, volumes: Informer[DataVolume], settings: Settings) -> None:
        self._volumes, self._settings = volumes, settings

    def naming(self, source: HasMetadata) -> list[Key]:
        """The DataVolumes that name a DataSource."""
        name = f"{source.metadata.namespace}/{source.metadata.name}"
        return _keys(self._volumes.by_index(BY_REFERENCE, name))

    def cloning(self, source: HasMetadata) -> list[Key]:
        """The DataVolumes that may wait for a source of this name."""
        name = f"{source.metadata.namespace}/{source.metadata.name}"
        found = self._volumes.by_index(_BY_SOURCE, name)
        return _keys(each for each in found if not each.status.claim_name)

    def of_claim(self, claim: PersistentVolumeClaim) -> list[Key]:
        """The DataVolume of a claim has its name; that of a prime claim the name of the claim's owner."""
        owner, name = claim.metadata.controller, claim.metadata.name
        if names.POPULATOR_KIND in claim.metadata.annotations and owner is not None:
            name = owner.name
        return [(claim.metadata.namespace, name)]

    def of_class(self, storage_class: StorageClass) -> list[Key]:
        """The DataVolumes without claim that wait for this class; where it is a default one, for any."""
        annotations = storage_class.metadata.annotations
        is_default = any(annotations.get(name) == claims.TRUE for name in _DEFAULTS)
        return self._waiting(storage_class.metadata.name, *([_NO_CLASS] if is_default else []))

    def of_profile(self, profile: StorageProfile) -> list[Key]:
        """The DataVolumes that wait for the class of a profile."""
        found = self._settings.storage_class(profile.metadata.name)
        return self.of_class(found) if found is not None else []

    def of_volume(self, volume: PersistentVolume) -> list[Key]:
        """Volumes matter to DataVolumes only where their class is but a name."""
        name = volume.spec.storage_class_name
        return self._waiting(name) if self._settings.storage_class(name) is None else []

    def _waiting(self, *classes: str) -> list[Key]:
        return _keys(each for name in classes for each in self._volumes.by_index(_BY_CLASS, name))


def _keys(volumes: Iterable[DataVolume]) -> list[Key]:
    return [(each.metadata.namespace, each.metadata.name) for each in volumes]
