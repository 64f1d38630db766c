"""Removes what was made for clones, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubecore.client import Client
from kubecore.objects import times
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS, ResourceType
from virtplane.api import resources
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.caches import HasMetadata
from virtplane.storage.cdi.controller.clones.lookups import BY_TARGET, Lookups
from virtplane.storage.csi.parts import delete

ORPHAN_SECONDS = 60.0
"""How long a temporary object may be without target: caches are never that old for long."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Deletes temporary objects by the uid of their target. All methods raise StatusError, UnfitDocument."""

    client: Client
    lookups: Lookups

    async def remove(self, uid: str) -> None:
        """Delete all that was made for the claim with `uid`."""
        for kind, obj in self._made_for(uid):
            if not obj.metadata.is_being_deleted:
                await delete(self.client, kind, obj)

    async def remove_orphans(self, uid: str) -> float | None:
        """The same for a claim that is no more; the seconds to wait where that is not sure yet.

        A request may take effect after it was given up, and after its target was removed.
        """
        left = 0.0
        for kind, obj in self._made_for(uid):
            if obj.metadata.is_being_deleted:
                continue
            remaining = ORPHAN_SECONDS - _age(obj.metadata)
            if remaining <= 0:
                await delete(self.client, kind, obj)
            left = max(left, remaining)
        return left if left > 0 else None

    def _made_for(self, uid: str) -> Iterator[tuple[ResourceType, HasMetadata]]:
        lookups = self.lookups
        for claim in lookups.claims.by_index(BY_TARGET, uid):
            yield PERSISTENT_VOLUME_CLAIMS, claim
        for pod in lookups.pods.by_index(BY_TARGET, uid):
            yield PODS, pod
        for snapshot in lookups.snapshots.by_index(BY_TARGET, uid):
            yield resources.VOLUME_SNAPSHOTS, snapshot


def _age(metadata: ObjectMeta) -> float:
    """In seconds."""
    return times.seconds_between(metadata.created, times.now_rfc3339()) if metadata.created else 0.0
