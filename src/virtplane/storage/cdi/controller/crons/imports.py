"""The objects of imports: making them, marking them as used, removing them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kubecore.client import Client
from kubecore.errors import StatusError, conflict, is_already_exists
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.controller.crons import decisions, documents, retention, rights, sources
from virtplane.storage.cdi.controller.crons.caches import BY_CRON, Caches
from virtplane.storage.cdi.controller.crons.decisions import Import, Target
from virtplane.storage.cdi.controller.crons.documents import Maker
from virtplane.storage.cdi.controller.deletion import delete_as_read
from virtplane.storage.cdi.controller.profiles.decisions import preferred
from virtplane.storage.csi.parts import members_patch, patch, versioned

logger = logging.getLogger(__name__)

Source = DataVolume | PersistentVolumeClaim | VolumeSnapshot


class NotStarted(Exception):
    """An import cannot begin now; the text says why. `unauthorized`: the service account may not clone."""

    def __init__(self, message: str, *, unauthorized: bool = False) -> None:
        super().__init__(message)
        self.unauthorized = unauthorized


class Imports:
    """Makes and removes imports. All methods raise StatusError, ConnectionFailed and UnfitDocument."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client, self._caches = client, caches
        self._authorizer = Authorizer(client)

    async def start(self, maker: Maker, target: Target, digest: str) -> str:
        """Begin the import of `digest`; its name. Content that is there already is used.

        Raises NotStarted.
        """
        cron = maker.cron
        name, namespace = sources.import_name(cron, digest), cron.metadata.namespace
        there = self._caches.imported(namespace, name)
        if there.snapshot is not None and target.keeps_snapshots and there.stage is decisions.Stage.SNAPSHOT:
            await self.mark_used(maker, kinds.VOLUME_SNAPSHOTS, there.snapshot, now_used=True)
            return name
        if there.claim is not None and decisions.is_populated(there.claim):
            await self.mark_used(maker, PERSISTENT_VOLUME_CLAIMS, there.claim, now_used=True)
            return name
        if there.data_volume is not None:
            # Whoever has decided to remove it has not seen this.
            await self.mark_used(maker, kinds.DATA_VOLUMES, there.data_volume, now_used=True)
            return name
        refusal = await rights.refusal(self._authorizer, cron)
        if refusal:
            raise NotStarted(refusal, unauthorized=True)
        document = await self._as_written(cron)
        made = documents.data_volume(maker, document, target, digest, times.now_micro())
        try:
            await self._client.create(kinds.DATA_VOLUMES, made)
        except StatusError as error:
            if error.code in (403, 422):
                raise NotStarted(f"DataVolume {namespace}/{name} is refused: {error.message}") from error
            if not is_already_exists(error):
                raise
        return name

    async def _as_written(self, cron: DataImportCron) -> JsonObject:
        """The cron's document, which the cache must not be behind. Raises StatusError (Conflict)."""
        kind = kinds.DATA_IMPORT_CRONS
        found = await self._client.get(kind, cron.metadata.name, cron.metadata.namespace)
        if meta.resource_version(found) != cron.metadata.resource_version:
            raise conflict(kind, cron.metadata.name)
        return found

    async def mark_used(self, maker: Maker, kind: ResourceType, found: Source, *, now_used: bool) -> None:
        """Give content the cron's labels, and the time of its use where that begins now or is not known."""
        before = {"annotations": dict(found.metadata.annotations), "labels": dict(found.metadata.labels)}
        annotations = dict(before["annotations"])
        if now_used or names.LAST_USE_TIME not in annotations:
            annotations[names.LAST_USE_TIME] = times.now_micro()
        if isinstance(found, VolumeSnapshot) and names.ADVISED_RESTORE_SIZE not in annotations:
            size = documents.advised_size(maker.cron, found, None)
            annotations |= {names.ADVISED_RESTORE_SIZE: size} if size else {}
        after = {"annotations": annotations, "labels": {**before["labels"], **maker.labels}}
        changes = versioned(found, members_patch("/metadata", before, after))
        await patch(self._client, kind, found, changes)

    async def keep_as_snapshot(self, maker: Maker, target: Target, found: Import) -> None:
        """Make the snapshot of an import; once it is ready and in use, remove what it was made of."""
        claim = found.claim
        if claim is None or claim.metadata.is_being_deleted:
            return
        if claim.spec.storage_class_name not in (None, target.class_name):
            return  # Content of another class: it is imported again.
        if found.snapshot is None:
            await self._snapshot(maker, target, claim)
        elif decisions.is_ready(found.snapshot) and not found.snapshot.metadata.is_being_deleted:
            key = (claim.metadata.namespace, claim.metadata.name)
            if key not in retention.named_claims(await self._caches.sources.read_live()):
                await self.remove(found)

    async def _snapshot(self, maker: Maker, target: Target, claim: PersistentVolumeClaim) -> None:
        made = documents.snapshot(maker, claim, self.snapshot_class(target), times.now_micro())
        try:
            await self._client.create(kinds.VOLUME_SNAPSHOTS, made)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    def snapshot_class(self, target: Target) -> str:
        """The class for snapshots of imports: that of the profile, or the driver's; empty for none."""
        profile, found = target.profile, target.storage_class
        if profile is None or found is None:
            return ""
        wanted = profile.metadata.annotations.get(names.SNAPSHOT_CLASS_FOR_CRON)
        if wanted or profile.status.snapshot_class:
            return wanted or profile.status.snapshot_class or ""
        classes = self._caches.snapshot_classes.list()
        return preferred(each for each in classes if each.driver == found.provisioner)

    async def remove(self, found: Import) -> None:
        """Remove a DataVolume with its claim, or the claim alone."""
        if found.data_volume is not None:
            await delete_as_read(self._client, kinds.DATA_VOLUMES, found.data_volume)
        elif found.claim is not None:
            await delete_as_read(self._client, PERSISTENT_VOLUME_CLAIMS, found.claim)

    async def remove_snapshot(self, found: VolumeSnapshot) -> None:
        """Remove a snapshot."""
        await delete_as_read(self._client, kinds.VOLUME_SNAPSHOTS, found)

    async def remove_all_of(self, cron: DataImportCron, name: str) -> bool:
        """Remove all there is of an import that belongs to `cron`; whether nothing is left."""
        found = self._caches.imported(cron.metadata.namespace, name)
        parts = (
            (kinds.VOLUME_SNAPSHOTS, found.snapshot),
            (kinds.DATA_VOLUMES, found.data_volume),
            (PERSISTENT_VOLUME_CLAIMS, found.claim),
        )
        left = False
        for kind, part in parts:
            if part is not None and part.metadata.labels.get(names.CRON) == cron.metadata.name:
                left = True
                await delete_as_read(self._client, kind, part)
        return not left

    async def collect(self, cron: DataImportCron) -> None:
        """Remove the imports beyond those to keep, but none that a DataSource leads to.

        Those that were begun and forgotten go as well: the process may have ended before it had written them.
        """
        kept = retention.imports_to_keep(cron)
        if kept is None:
            return
        label = f"{cron.metadata.namespace}/{cron.metadata.name}"
        needed = retention.in_use(cron)
        claims = retention.surplus(kept, self._caches.claims.by_index(BY_CRON, label), needed)
        snapshots = retention.surplus(kept, self._caches.snapshots.by_index(BY_CRON, label), needed)
        made = self._caches.data_volumes.by_index(BY_CRON, label)
        abandoned = [each for each in made if each.status.phase != "Succeeded"]
        if len(made) > kept:
            abandoned += [each for each in made if self._has_lost_its_claim(cron, each)]
        if not claims and not snapshots and not abandoned:
            return
        # What somebody has begun to use is newer than any cache: the cron itself, or a DataSource.
        await self._as_written(cron)
        live = await self._caches.sources.read_live()
        for claim in _spared(cron, claims, retention.named_claims, live):
            key = (claim.metadata.namespace, claim.metadata.name)
            logger.info("an import is outdated and goes: claim %s/%s", *key)
            await self.remove(Import(self._caches.data_volumes.get(*key), claim))
        for data_volume in _spared(cron, abandoned, retention.named_claims, live):
            logger.info("an import that nobody waits for goes: %s/%s", label, data_volume.metadata.name)
            await delete_as_read(self._client, kinds.DATA_VOLUMES, data_volume)
        for snapshot in _spared(cron, snapshots, retention.named_snapshots, live):
            logger.info("an import is outdated and goes: snapshot %s/%s", label, snapshot.metadata.name)
            await self.remove_snapshot(snapshot)

    def _has_lost_its_claim(self, cron: DataImportCron, made: DataVolume) -> bool:
        """Whether the claim of a finished import is the cron's no longer, and counts among none of them."""
        claim = self._caches.claims.get(made.metadata.namespace, made.metadata.name)
        return (
            made.status.phase == "Succeeded"
            and claim is not None
            and claim.metadata.labels.get(names.CRON) != cron.metadata.name
        )


def _spared(
    cron: DataImportCron,
    surplus: list[retention.Kept],
    named: Callable[[Iterable[DataSource]], frozenset[tuple[str, str]]],
    live: Iterable[DataSource],
) -> list[retention.Kept]:
    """What of `surplus` may go: nobody leads to it, and the cron itself does not need it."""
    needed, led_to = retention.in_use(cron), named(live)
    return [
        each
        for each in surplus
        if each.metadata.name not in needed and (each.metadata.namespace, each.metadata.name) not in led_to
    ]
