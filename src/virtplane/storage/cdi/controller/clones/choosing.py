"""Chooses the strategy of a clone by what the caches say."""

from __future__ import annotations

from dataclasses import dataclass

from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller.clones import strategy
from virtplane.storage.cdi.controller.clones.lookups import Lookups
from virtplane.storage.cdi.controller.clones.plans import Restored
from virtplane.storage.cdi.controller.clones.sources import Source
from virtplane.storage.cdi.controller.clones.strategy import Choice, ClaimFacts, Facts, Notice, Refused
from virtplane.storage.cdi.controller.installation import active
from virtplane.storage.cdi.controller.snapshots import source_mode


@dataclass(frozen=True, slots=True)
class Choosing:
    """Reads what the pure decisions need. All methods raise UnfitDocument."""

    lookups: Lookups

    def choose(self, target: PersistentVolumeClaim, source: Source) -> Choice | None:
        """The strategy; None while the source is missing. Raises CloneError."""
        facts = self._facts(target)
        if source.is_claim:
            claim = self.lookups.claim(source.namespace, source.name)
            return strategy.for_claim(facts, self._claim_facts(target, claim)) if claim is not None else None
        snapshot = self.lookups.snapshot(source.namespace, source.name)
        if snapshot is None:
            return None
        name = snapshot.status.bound_volume_snapshot_content_name
        if not name:
            raise Refused("volumeSnapshotContent name not found")
        content = self.lookups.content(snapshot)
        if content is None:
            raise Refused(f'volumesnapshotcontents.snapshot.storage.k8s.io "{name}" not found')
        return strategy.for_snapshot(facts, snapshot, content)

    def snapshot_class(self, target: PersistentVolumeClaim, source: PersistentVolumeClaim) -> Notice | None:
        """The class for a snapshot of `source`; None where there is no right one. Raises CloneError."""
        return strategy.snapshot_class(self._facts(target), self._claim_facts(target, source), source)

    def restored(self, target: PersistentVolumeClaim, source: Source) -> Restored:
        """How pods get at what is in a snapshot. Raises CloneError."""
        snapshot = self.lookups.snapshot(source.namespace, source.name)
        if snapshot is None:
            raise Refused("source snapshot does not exist")
        content = self.lookups.content(snapshot)
        if content is None:
            raise Refused("volumeSnapshotContent name not found")
        fit = [
            each.metadata.name
            for each in self.lookups.settings.classes.list()
            if each.provisioner == content.spec.driver
        ]
        if not fit:
            raise Refused("unable to find a valid storage class for the temporal source claim")
        mode = source_mode(snapshot, content) or rendering.volume_mode(target.spec)
        return Restored(snapshot, min(fit), mode)

    def _facts(self, target: PersistentVolumeClaim) -> Facts:
        settings = self.lookups.settings
        found = settings.storage_class(target.spec.storage_class_name)
        if found is None:
            raise Refused("target storage class not found")
        installation = active(settings.installations)
        override = installation.spec.clone_strategy_override if installation is not None else None
        storage = settings.storage()
        return Facts(
            target, found, storage.profiles, storage.classes, self.lookups.snapshot_classes(), override or ""
        )

    def _claim_facts(self, target: PersistentVolumeClaim, source: PersistentVolumeClaim) -> ClaimFacts:
        found = (self.lookups.volume(source), self.lookups.volume(target))
        return ClaimFacts(source, {each.metadata.name: each for each in found if each is not None})
