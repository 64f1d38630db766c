"""What DataVolumes that are clones need besides a claim: rights, a source that is right, a size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS, ResourceType
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.deadlines import until_deadline
from virtplane.cluster.objects import described, finalizer_patch
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller import claims, snapshots
from virtplane.storage.cdi.controller.clones import plans, strategy
from virtplane.storage.cdi.controller.clones.lookups import Lookups
from virtplane.storage.cdi.controller.clones.sources import Source
from virtplane.storage.cdi.controller.clones.tokens import NoSigningKey, SigningKey
from virtplane.storage.cdi.controller.datavolume import clone_objects, clone_sizes
from virtplane.storage.cdi.controller.datavolume.conditions import Problem
from virtplane.storage.cdi.controller.datavolume.decisions import Notice, Phase, Situation
from virtplane.storage.cdi.controller.datavolume.detection import Detection, NotDetected
from virtplane.storage.cdi.controller.datavolume.references import References
from virtplane.storage.cdi.controller.workers.observed import Annotations
from virtplane.storage.cdi.controller.workers.starting import claim_patch
from virtplane.storage.cdi.tokens import InvalidToken
from virtplane.storage.csi.parts import annotations_patch, delete, patch

WITHOUT_SOURCE = "CloneWithoutSource"
_RETRY_SECONDS = 5.0
_REFUSALS = frozenset({400, 403, 422})
_BY_OWNER, _BY_NAME = "DataVolume", "name"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The claim cannot be made yet. Without problem, nothing is told."""

    result: Result
    problem: Problem | None = None
    phase: Phase | None = None


class Cloning:
    """All methods raise StatusError, ConnectionFailed and UnfitDocument."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        lookups: Lookups,
        references: References,
        key: SigningKey,
    ) -> None:
        self._client, self._recorder, self._lookups, self._key = client, recorder, lookups, key
        self.references = references
        self._detection = Detection(client, recorder, lookups)
        lookups.sources.add_index(_BY_NAME, _name_of)
        for informer in self._owned:
            informer.add_index(_BY_OWNER, clone_objects.owner_keys)

    @property
    def _owned(self) -> tuple[Informer[Any], ...]:
        return (self._lookups.sources, self._lookups.pods, self._lookups.claims)

    @property
    def snapshots(self) -> Informer[VolumeSnapshot]:
        """The snapshots; none where the cluster does not serve them."""
        return self._lookups.snapshots

    def watch(self, controller: Controller) -> None:
        """Have DataVolumes reconciled when what was made for them changes."""
        for informer in self._owned:
            controller.watch(informer, _keys_of_owner)
        for informer in self._lookups.informers:
            controller.depend(informer)
        controller.depend(self.references.informer)

    async def prepare(self, situation: Situation, spec: JsonObject) -> JsonObject | Waiting:
        """The spec of the claim with its size, once everything is there that the clone needs."""
        volume, source = situation.volume, situation.clone
        assert source is not None
        is_foreign = source.namespace != volume.metadata.namespace
        problem = await self._problem(volume, source)
        if problem:
            return await self._exchange(volume, source, problem)
        found = await (
            self._for_claim(situation, source, spec)
            if source.is_claim
            else self._for_snapshot(situation, source, spec)
        )
        if isinstance(found, Waiting):
            return found
        if not situation.uses_populator:
            return found
        finalizer = finalizer_patch(volume.metadata, names.DATA_VOLUME_FINALIZER, present=True)
        if is_foreign and finalizer:
            await patch(self._client, resources.DATA_VOLUMES, volume, finalizer)
            return Waiting(DONE)  # its event brings the DataVolume back
        await self._ensure(resources.VOLUME_CLONE_SOURCES, clone_objects.clone_source(volume, source))
        return found

    async def _problem(self, volume: DataVolume, source: Source) -> str:
        """Why `volume` may not clone `source` yet; empty where it may. Anybody can write annotations."""
        metadata = volume.metadata
        if source.namespace == metadata.namespace:
            return ""
        token = metadata.annotations.get(names.EXTENDED_CLONE_TOKEN)
        if token is None:
            return "token missing"
        permission = source.permission(metadata.namespace, metadata.name)
        try:
            (await self._key.tokens()).expect(token, permission, metadata.uid)
        except (InvalidToken, NoSigningKey) as error:
            return f"error verifying token: {error}"
        return ""

    async def _exchange(self, volume: DataVolume, source: Source, problem: str) -> Waiting:
        """Exchange the token that cdi-apiserver gave for some minutes, where there is one."""
        metadata = volume.metadata
        token = metadata.annotations.get(names.CLONE_TOKEN)
        if token is None:
            return _invalid(problem)
        permission = source.permission(metadata.namespace, metadata.name)
        try:
            long = (await self._key.tokens()).exchanged(token, permission, metadata.uid)
        except (InvalidToken, NoSigningKey) as error:
            return _invalid(f"error verifying token: {error}")
        changes = annotations_patch(volume, {names.EXTENDED_CLONE_TOKEN: long})
        await patch(self._client, resources.DATA_VOLUMES, volume, changes)
        return Waiting(DONE)  # its event brings the DataVolume back

    async def _for_claim(
        self, situation: Situation, source: Source, spec: JsonObject
    ) -> JsonObject | Waiting:
        volume, storage = situation.volume, self._lookups.settings.storage()
        claim = self._lookups.claim(source.namespace, source.name)
        if claim is None:
            return _without(source)
        problem = clone_sizes.claim_problem(volume, claim, storage)
        if problem:
            return _invalid(problem)
        if volume.spec.storage is None or not clone_sizes.needs_size(spec, claim):
            return spec
        try:
            content = await self._detection.size(volume, claim)
        except NotDetected as error:
            return _invalid(str(error))
        if content is None:
            return _scheduled(situation)
        sized = clone_sizes.sized(spec, claim, content, storage)
        if sized.is_permissive:
            changes = annotations_patch(volume, {names.PERMISSIVE_CLONE: claims.TRUE})
            if changes:
                await patch(self._client, resources.DATA_VOLUMES, volume, changes)
                return Waiting(DONE)  # its event brings the DataVolume back
        return sized.spec

    async def _for_snapshot(
        self, situation: Situation, source: Source, spec: JsonObject
    ) -> JsonObject | Waiting:
        volume, storage = situation.volume, self._lookups.settings.storage()
        snapshot = self._lookups.snapshot(source.namespace, source.name)
        if snapshot is None:
            return _without(source)
        problem = clone_sizes.snapshot_problem(volume, snapshot, storage)
        if problem:
            return _invalid(problem)
        if volume.spec.storage is not None:
            content = self._lookups.content(snapshot)
            spec = clone_sizes.restored_size(spec, snapshot, content, storage)
        if not situation.uses_populator:
            waiting = await self._restore(volume, snapshot, spec)
            if waiting is not None:
                return waiting
        return spec

    async def _restore(
        self, volume: DataVolume, snapshot: VolumeSnapshot, spec: JsonObject
    ) -> Waiting | None:
        """Make the claim of the snapshot that pods will copy, where no populator can."""
        finalizer = finalizer_patch(volume.metadata, names.DATA_VOLUME_FINALIZER, present=True)
        if finalizer:
            await patch(self._client, resources.DATA_VOLUMES, volume, finalizer)
            return Waiting(DONE)  # its event brings the DataVolume back
        name = snapshot.spec.volume_snapshot_class_name
        driver = next(
            (each.driver for each in self._lookups.snapshot_classes() if each.metadata.name == name), None
        )
        fit = [
            each.metadata.name for each in self._lookups.settings.classes.list() if each.provisioner == driver
        ]
        if not fit:
            return _invalid("no storage class match for snapshot driver")
        mode = snapshots.source_mode(snapshot, self._lookups.content(snapshot))
        mode = mode or str(spec.get("volumeMode") or rendering.FILESYSTEM)
        document = clone_objects.source_claim(volume, snapshot, spec, min(fit), mode)
        try:
            await self._ensure(PERSISTENT_VOLUME_CLAIMS, document)
        except StatusError as error:
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            return _invalid(error.message)
        return None

    async def _ensure(self, kind: ResourceType, document: JsonObject) -> None:
        try:
            await self._client.create(kind, document, document["metadata"]["namespace"])
        except StatusError as error:
            if not is_already_exists(error):
                raise

    def claim_annotations(self, situation: Situation) -> dict[str, str]:
        """The annotations of the claim by which it becomes a clone."""
        volume, source = situation.volume, situation.clone
        assert source is not None
        found: dict[str, str] = {}
        if source.namespace != volume.metadata.namespace:
            found[names.CLONE_TOKEN] = volume.metadata.annotations.get(names.CLONE_TOKEN, "")
            if situation.uses_populator:
                found[names.DATA_SOURCE_NAMESPACE] = source.namespace
        if not situation.uses_populator:
            name = source.name
            if not source.is_claim:
                name = cdi_names.host_assisted_source_claim(volume.metadata.uid)
            found[names.CLONE_REQUEST] = f"{source.namespace}/{name}"
        return found

    def marks(self, situation: Situation) -> dict[str, str]:
        """The annotations of the DataVolume that say how the clone is made."""
        if situation.claim is None:
            return {}
        said = claims.value(situation.claim, names.CLONE_TYPE)
        if not situation.uses_populator:
            said = strategy.COPY
        return {names.CLONE_TYPE: said} if said else {}

    async def labels(self, situation: Situation) -> Mapping[str, str]:
        """The labels of what is cloned, for who may clone it."""
        source = situation.clone
        assert source is not None
        if await self._problem(situation.volume, source):
            return {}
        key = (source.namespace, source.name)
        found: HasMetadata | None = (
            self._lookups.claim(*key) if source.is_claim else self._lookups.snapshot(*key)
        )
        return found.metadata.labels if found is not None else {}

    async def follow(self, situation: Situation, claim: PersistentVolumeClaim) -> bool:
        """See that the claim still has what it needs to be filled; whether something was written."""
        volume, source = situation.volume, situation.clone
        assert source is not None
        if claims.has(claim, names.PERSISTENT_VOLUME_LIST):
            return False
        said: Annotations = {}
        is_foreign = source.namespace != volume.metadata.namespace
        if is_foreign and not claims.has(claim, names.EXTENDED_CLONE_TOKEN):
            said |= await self._passed_on(volume, claim, source)
        if not situation.uses_populator:
            said |= {names.CLONE_TYPE: strategy.COPY}
            said |= {names.CLONE_FALLBACK_REASON: strategy.NO_POPULATOR.message}
            if names.CLONE_FALLBACK_REASON not in claim.metadata.annotations:
                notice = strategy.NO_POPULATOR
                self._recorder.event(described(claim), notice.kind, notice.reason, notice.message)
        elif not claims.is_bound(claim) and claims.value(claim, names.CLONE_PHASE) != plans.SUCCEEDED:
            name = cdi_names.clone_source(volume.metadata.uid)
            is_missing = not self._lookups.sources.by_index(_BY_NAME, name)
            if is_missing and not await self._problem(volume, source):
                await self._ensure(resources.VOLUME_CLONE_SOURCES, clone_objects.clone_source(volume, source))
        operations = claim_patch(claim, said)
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        return bool(operations)

    async def _passed_on(
        self, volume: DataVolume, claim: PersistentVolumeClaim, source: Source
    ) -> Annotations:
        """The DataVolume's right, for this very claim; nothing where it has none."""
        token = volume.metadata.annotations.get(names.EXTENDED_CLONE_TOKEN, "")
        permission = source.permission(volume.metadata.namespace, volume.metadata.name)
        uids = volume.metadata.uid, claim.metadata.uid
        try:
            return {
                names.EXTENDED_CLONE_TOKEN: (await self._key.tokens()).passed_on(token, permission, *uids)
            }
        except (InvalidToken, NoSigningKey) as error:
            notice = _invalid(f"error verifying token: {error}").problem
            assert notice is not None
            self._recorder.event(described(volume), "Warning", notice.reason, notice.message)
            return {}

    async def clean_up(self, volume: DataVolume) -> None:
        """Remove what was made for a DataVolume that has its content, or goes; then let it go."""
        uid = volume.metadata.uid
        for kind, obj in self._made_for((volume.metadata.namespace, volume.metadata.name)):
            is_kept = kind == PODS and claims.is_true(volume.metadata, names.POD_RETAIN)
            if clone_objects.owner_uid(obj) == uid or obj.metadata.is_controlled_by(volume.metadata):
                kept = is_kept and not volume.metadata.is_being_deleted
                # What is left is removed once the DataVolume is gone.
                with until_deadline(volume, self._recorder, f"removing {kind.kind} {obj.metadata.name}"):
                    await self._remove(kind, obj, is_kept=kept)
        finalizer = finalizer_patch(volume.metadata, names.DATA_VOLUME_FINALIZER, present=False)
        await patch(self._client, resources.DATA_VOLUMES, volume, finalizer)

    async def remove_left(self, key: Key, uid: str) -> None:
        """Remove what was made for an earlier DataVolume of that name; `uid` is that of the one there is.

        A request may take effect after it was given up. The cache may be old: the DataVolume is read.
        """
        left = [
            (kind, obj)
            for kind, obj in self._made_for(key)
            if clone_objects.owner_uid(obj) not in ("", uid) and not obj.metadata.is_being_deleted
        ]
        if not left:
            return
        try:
            current = meta.uid(await self._client.get(resources.DATA_VOLUMES, key[1], key[0]))
        except StatusError as error:
            if not is_not_found(error):
                raise
            current = ""
        for kind, obj in left:
            if clone_objects.owner_uid(obj) != current:
                await self._remove(kind, obj, is_kept=False)

    async def _remove(self, kind: ResourceType, obj: HasMetadata, *, is_kept: bool) -> None:
        if not is_kept and not obj.metadata.is_being_deleted:
            await delete(self._client, kind, obj)

    def _made_for(self, key: Key) -> Iterator[tuple[ResourceType, HasMetadata]]:
        """What belongs to a DataVolume, as its annotations say; others may have written them."""
        owner = "/".join(key)
        for source in self._lookups.sources.by_index(_BY_OWNER, owner):
            yield resources.VOLUME_CLONE_SOURCES, source
        for pod in self._lookups.pods.by_index(_BY_OWNER, owner):
            if pod.metadata.name.startswith(cdi_names.size_detection_pod("")):
                yield PODS, pod
        for claim in self._lookups.claims.by_index(_BY_OWNER, owner):
            if claim.metadata.labels.get(names.COMPONENT) == names.SNAPSHOT_FALLBACK_CLAIM:
                yield PERSISTENT_VOLUME_CLAIMS, claim


def _without(source: Source) -> Waiting:
    return Waiting(RequeueAfter(_RETRY_SECONDS), Problem(WITHOUT_SOURCE, source.missing))


def _invalid(problem: str) -> Waiting:
    text = f"The clone doesn't meet the validation requirements: {problem}"
    return Waiting(RequeueAfter(_RETRY_SECONDS), Problem(strategy.VALIDATION_FAILED, text))


def _scheduled(situation: Situation) -> Waiting:
    """The size is not known yet."""
    flow = situation.flow
    assert flow.texts is not None
    reason, text = flow.texts.scheduled
    text = text.format(situation.subject)
    phase = Phase(flow.scheduled_phase, Notice("Normal", reason, text))
    return Waiting(RequeueAfter(_RETRY_SECONDS), Problem(reason, text), phase)


def _name_of(obj: HasMetadata) -> Iterable[str]:
    return (obj.metadata.name,)


def _keys_of_owner(obj: HasMetadata) -> list[Key]:
    found = (each.partition("/") for each in clone_objects.owner_keys(obj))
    return [(namespace, name) for namespace, slash, name in found if slash and namespace and name]
