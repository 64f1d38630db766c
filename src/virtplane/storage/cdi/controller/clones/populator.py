"""Fills claims that name a VolumeCloneSource."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from kubecore.client import Client
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.volume_sources import VolumeCloneSource
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.deadlines import until_deadline
from virtplane.cluster.objects import described, finalizer_patch
from virtplane.storage.cdi.controller import claims, progress
from virtplane.storage.cdi.controller.clones import plans, status
from virtplane.storage.cdi.controller.clones.choosing import Choosing
from virtplane.storage.cdi.controller.clones.cleaning import Cleaning
from virtplane.storage.cdi.controller.clones.documents import common_labels
from virtplane.storage.cdi.controller.clones.lookups import Lookups, target_uids
from virtplane.storage.cdi.controller.clones.plans import CopyByPods
from virtplane.storage.cdi.controller.clones.sources import CloneError, Source, source_of
from virtplane.storage.cdi.controller.clones.steps import Clone, Steps
from virtplane.storage.cdi.controller.clones.strategy import COPY, Choice, Refused
from virtplane.storage.cdi.controller.clones.tokens import NoSigningKey, SigningKey
from virtplane.storage.cdi.controller.populators import decisions
from virtplane.storage.cdi.controller.populators.claim_events import ClaimEvents, Event
from virtplane.storage.cdi.controller.populators.decisions import GROUP, Start
from virtplane.storage.cdi.controller.populators.reconciler import RETAINED_MESSAGE, RETAINED_PRIME
from virtplane.storage.cdi.controller.workers.observed import Annotations
from virtplane.storage.cdi.controller.workers.starting import claim_patch
from virtplane.storage.cdi.tokens import InvalidToken
from virtplane.storage.csi.parts import patch

logger = logging.getLogger(__name__)

NAME = "clone-populator"
WITHOUT_SOURCE = "CloneWithoutSource"
_RETRY_SECONDS = 10.0
_SOURCE_SECONDS = 5.0
_BY_SOURCE, _BY_CONTENT, _BY_CLASS = "clone source", "clone content", "class of clone"
_NO_NAMESPACE = ""
"""The namespace in keys of claims that are no more: their name is the uid."""


class ClonePopulator:
    """Reconciles the claims that name a VolumeCloneSource."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        lookups: Lookups,
        key: SigningKey,
        scraper: progress.Progress,
    ) -> None:
        self._client, self._recorder, self._lookups = client, recorder, lookups
        self._key, self._scraper = key, scraper
        self._events = ClaimEvents(manager, recorder)
        self._choosing, self._cleaning = Choosing(lookups), Cleaning(client, lookups)
        self._steps = Steps(client, recorder, lookups, self._choosing, self._events)
        lookups.claims.add_index(_BY_SOURCE, _source_keys)
        lookups.claims.add_index(_BY_CLASS, _class_of)
        lookups.sources.add_index(_BY_CONTENT, _content_of)
        controller = Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(lookups.claims, self._of_claim)
        controller.watch(lookups.pods, self._of_made)
        controller.watch(lookups.sources, self._of_source)
        controller.watch(lookups.settings.classes, self._of_class)
        controller.watch(self._events.informer, self._of_event)
        controller.watch(lookups.snapshots, self._of_snapshot)
        for informer in lookups.informers:
            controller.depend(informer)
        manager.add(controller)

    def _of_claim(self, claim: PersistentVolumeClaim) -> Iterator[Key]:
        """The claim itself, the one that it is made for, those that are clones of it."""
        if is_target(claim):
            yield claim.metadata.namespace, claim.metadata.name
            if self._lookups.made_for(claim, source_namespace(claim)) is not None:
                yield _NO_NAMESPACE, claim.metadata.uid  # what was retained goes with it
        yield from self._of_made(claim)
        yield from self._of_content(PERSISTENT_VOLUME_CLAIMS.kind, claim)

    def _of_snapshot(self, snapshot: VolumeSnapshot) -> Iterator[Key]:
        yield from self._of_made(snapshot)
        yield from self._of_content(resources.VOLUME_SNAPSHOTS.kind, snapshot)

    def _of_made(self, obj: HasMetadata) -> Iterator[Key]:
        """The target of a temporary object."""
        for uid in target_uids(obj):
            target = self._lookups.target(uid)
            yield from _keys([target]) if target is not None else [(_NO_NAMESPACE, uid)]

    def _of_content(self, kind: str, obj: HasMetadata) -> Iterator[Key]:
        name = f"{kind}/{obj.metadata.namespace}/{obj.metadata.name}"
        for source in self._lookups.sources.by_index(_BY_CONTENT, name):
            yield from self._of_source(source)

    def _of_source(self, source: VolumeCloneSource) -> list[Key]:
        name = f"{source.metadata.namespace}/{source.metadata.name}"
        return _keys(self._lookups.claims.by_index(_BY_SOURCE, name))

    def _of_class(self, storage_class: StorageClass) -> list[Key]:
        return _keys(self._lookups.claims.by_index(_BY_CLASS, storage_class.metadata.name))

    def _of_event(self, event: Event) -> list[Key]:
        """The target of the temporary claim that an event is about."""
        try:
            claim = self._lookups.claim(event.involved_object.namespace, event.involved_object.name)
        except UnfitDocument:
            return []  # its controllers say so
        return list(self._of_made(claim)) if claim is not None else []

    async def reconcile(self, key: Key) -> Result:
        """Bring one claim a step nearer to its content. Raises StatusError, ConnectionFailed."""
        try:
            return await self._reconcile(key)
        except UnfitDocument as error:
            logger.error("a claim or what it is cloned from cannot be decoded, so it waits: %s", error)
            return DONE

    async def _reconcile(self, key: Key) -> Result:
        if key[0] == _NO_NAMESPACE:
            left = await self._cleaning.remove_orphans(key[1]) if not self._lookups.target(key[1]) else None
            return DONE if left is None else RequeueAfter(left)
        target = self._lookups.claim(*key)
        if target is None or not is_target(target):
            return DONE
        is_over = claims.value(target, names.CLONE_PHASE) == plans.SUCCEEDED
        if target.metadata.is_being_deleted or is_over:
            return await self._end(target)
        try:
            return await self._go_on(target)
        except CloneError as error:
            for notice in error.notices if isinstance(error, Refused) else ():
                self._recorder.event(described(target), notice.kind, notice.reason, notice.message)
            await self._annotate(target, status.failed(target, str(error)))
            return RequeueAfter(_RETRY_SECONDS)

    async def _go_on(self, target: PersistentVolumeClaim) -> Result:
        """Raises CloneError."""
        made = self._lookups.made_for(target, source_namespace(target))
        if claims.is_bound(target) and names.CLONE_POPULATOR_FINALIZER in target.metadata.finalizers:
            done = status.in_phase(target, plans.SUCCEEDED, made) | status.bound(target, "")
            await self._annotate(target, done)
            return DONE
        document = self._document(target) if self._may_begin(target) else None
        if document is None:
            await self._annotate(target, status.in_phase(target, plans.PENDING))
            return DONE  # a change of the claim, its class or its source brings it back
        source = source_of(document)
        if not await self._may_clone(target, source):
            await self._annotate(target, status.in_phase(target, plans.PENDING))
            return DONE  # its token brings it back
        said = claims.value(target, names.CLONE_TYPE)
        choice = Choice(said) if said else self._choose(target, source)
        if choice is None:
            await self._annotate(target, status.in_phase(target, plans.PENDING))
            return RequeueAfter(_SOURCE_SECONDS)
        if await self._begin(target, choice):
            return DONE  # its event brings it back
        preallocation = document.spec.preallocation
        clone = Clone(
            target,
            source,
            self._lookups.settings.preallocates if preallocation is None else preallocation,
            document.spec.priority_class_name or "",
        )
        return await self._execute(clone, choice.strategy, made)

    def _may_begin(self, target: PersistentVolumeClaim) -> bool:
        """Whether the class is there, and the node is chosen where it matters. Raises CloneError."""
        name = target.spec.storage_class_name
        if name is None:
            return False  # one may become the default
        if not name:
            raise CloneError("claim has emptystring storageclass, will not work")
        found = self._lookups.settings.storage_class(name)
        if found is None:
            raise CloneError(f"storage class {name} not found")
        possible = decisions.start(target, found)
        if possible is Start.IN_TREE:
            claim = f"{target.metadata.namespace}/{target.metadata.name}"
            text = f"can't use populator for PVC {claim} with in-tree storage class {found.provisioner}"
            raise CloneError(text)
        return possible is Start.READY

    def _document(self, target: PersistentVolumeClaim) -> VolumeCloneSource | None:
        reference = target.spec.data_source_ref
        return self._lookups.sources.get(source_namespace(target), reference.name) if reference else None

    async def _may_clone(self, target: PersistentVolumeClaim, source: Source) -> bool:
        """Whether the target has the right to its source; false while it waits for it. Raises CloneError.

        The annotations are its owner's: only a token that is bound to this very claim proves anything.
        """
        metadata = target.metadata
        if source.namespace == metadata.namespace:
            return True
        if claims.value(target, names.DATA_SOURCE_NAMESPACE) != source.namespace:
            raise CloneError("cross-namespace with resource grants is not supported yet")
        token = claims.value(target, names.EXTENDED_CLONE_TOKEN)
        if not token:
            return False
        permission = source.permission(metadata.namespace, metadata.name)
        try:
            (await self._key.tokens()).expect(token, permission, metadata.uid)
        except InvalidToken as error:
            raise CloneError(f"error verifying token: {error}") from error
        except NoSigningKey as error:
            raise CloneError("error verifying token: there is no key") from error
        return True

    def _choose(self, target: PersistentVolumeClaim, source: Source) -> Choice | None:
        choice = self._choosing.choose(target, source)
        if choice is None:
            self._recorder.event(described(target), "Warning", WITHOUT_SOURCE, source.missing)
        return choice

    async def _begin(self, target: PersistentVolumeClaim, choice: Choice) -> bool:
        """Write down the strategy, and that there will be something to remove; whether that was news."""
        labels = common_labels(target.spec.volume_mode)
        finalizer = finalizer_patch(target.metadata, names.CLONE_POPULATOR_FINALIZER, present=True)
        operations = claim_patch(target, status.begun(target, choice), labels)
        written = await patch(self._client, PERSISTENT_VOLUME_CLAIMS, target, [*operations, *finalizer])
        if written is not None:
            for notice in choice.notices:
                self._recorder.event(described(target), notice.kind, notice.reason, notice.message)
        return bool(operations or finalizer)

    async def _execute(self, clone: Clone, strategy: str, made: PersistentVolumeClaim | None) -> Result:
        """Bring the first phase that is not over a step further; `made` is the claim whose volume the
        target will get. Raises CloneError.
        """
        target, source = clone.target, clone.source
        is_restored = strategy == COPY and not source.is_claim
        phases = plans.plan(
            strategy, source, target, self._choosing.restored(target, source) if is_restored else None
        )
        if made is not None and made.status.phase == claims.LOST:
            phases = phases[-1:]  # its volume was given away
        for phase in phases:
            result = await self._steps.run(clone, phase)
            if result is not None:
                copy = made if isinstance(phase, CopyByPods) else None
                changes = status.in_phase(target, phase.name, copy, await self._percent(clone, copy))
                changes |= status.bound(target, self._events.pass_on(made, target) if made else "")
                await self._annotate(target, changes)
                return result
        return DONE  # the target has its volume, and will be bound to it

    async def _percent(self, clone: Clone, copy: PersistentVolumeClaim | None) -> str | None:
        if copy is None:
            return None
        if claims.value(copy, names.POD_PHASE) == claims.SUCCEEDED:
            return progress.COMPLETE
        name = cdi_names.clone_source_pod(copy.metadata.uid)
        pod = self._lookups.pods.get(clone.source.namespace, name)
        if pod is None or pod.status.phase != claims.RUNNING or not pod.status.pod_ip:
            return None
        return await self._scraper.percent(pod.status.pod_ip, clone.target.metadata.uid)

    async def _end(self, target: PersistentVolumeClaim) -> Result:
        """Remove what is left of a clone, then let the target go."""
        metadata = target.metadata
        is_copied = claims.value(target, names.CLONE_TYPE) == COPY
        is_kept = is_copied and claims.is_true(metadata, names.POD_RETAIN) and not metadata.is_being_deleted
        operations = finalizer_patch(metadata, names.CLONE_POPULATOR_FINALIZER, present=False)
        if not is_kept:
            # What is left is removed once the target is gone.
            with until_deadline(target, self._recorder, "removing what was made for its clone"):
                await self._cleaning.remove(metadata.uid)
        elif operations:
            self._recorder.event(described(target), "Warning", RETAINED_PRIME, RETAINED_MESSAGE)
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, target, operations)
        if not operations and claims.has(target, names.BOUND):
            await self._annotate(target, status.bound(target, ""))
        return DONE

    async def _annotate(self, target: PersistentVolumeClaim, changes: Annotations) -> None:
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, target, claim_patch(target, changes))


def is_target(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim names a VolumeCloneSource."""
    reference = claim.spec.data_source_ref
    is_named = reference is not None and bool(reference.name) and reference.api_group == GROUP
    return is_named and reference is not None and reference.kind == resources.VOLUME_CLONE_SOURCES.kind


def source_namespace(target: PersistentVolumeClaim) -> str:
    """Where the VolumeCloneSource of a claim is."""
    reference = target.spec.data_source_ref
    asked = reference.namespace if reference is not None else None
    return claims.value(target, names.DATA_SOURCE_NAMESPACE) or asked or target.metadata.namespace


def _source_keys(claim: PersistentVolumeClaim) -> Iterable[str]:
    reference = claim.spec.data_source_ref
    if reference is None or not is_target(claim):
        return []
    return [f"{source_namespace(claim)}/{reference.name}"]


def _class_of(claim: PersistentVolumeClaim) -> Iterable[str]:
    return [claim.spec.storage_class_name or ""] if is_target(claim) else []


def _content_of(source: VolumeCloneSource) -> Iterable[str]:
    wanted = source.spec.source
    return [f"{wanted.kind}/{source.metadata.namespace}/{wanted.name}"]


def _keys(found: Iterable[PersistentVolumeClaim]) -> list[Key]:
    return [(claim.metadata.namespace, claim.metadata.name) for claim in found]
