"""What clones are made of."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.volume_sources import VolumeCloneSource
from virtplane.storage.cdi.clone_rights import SourceKind
from virtplane.storage.cdi.controller.clones.tokens import Permission


class CloneError(Exception):
    """A clone cannot go on until something is corrected. The text is for its user."""


@dataclass(frozen=True, slots=True)
class Source:
    """A claim or a snapshot."""

    kind: SourceKind
    namespace: str
    name: str

    @property
    def resource(self) -> ResourceType:
        """The resource that it is."""
        return PERSISTENT_VOLUME_CLAIMS if self.is_claim else resources.VOLUME_SNAPSHOTS

    @property
    def is_claim(self) -> bool:
        """Whether it is a claim."""
        return self.kind is SourceKind.CLAIM

    @property
    def missing(self) -> str:
        """What users are told while it is not there."""
        return f"The source {self.kind} {self.name} doesn't exist"

    def permission(self, namespace: str, name: str) -> Permission:
        """What a clone into the claim `name` of `namespace` needs, unless it is the source's own."""
        return Permission(self.namespace, self.name, namespace, name, self.resource)


def source_of(document: VolumeCloneSource) -> Source:
    """The source that a VolumeCloneSource names; it is in the same namespace. Raises CloneError."""
    wanted = document.spec.source
    for kind, resource in (
        (SourceKind.CLAIM, PERSISTENT_VOLUME_CLAIMS),
        (SourceKind.SNAPSHOT, resources.VOLUME_SNAPSHOTS),
    ):
        if wanted.kind == resource.kind and wanted.name:
            return Source(kind, document.metadata.namespace, wanted.name)
    raise CloneError("unsupported datasource")
