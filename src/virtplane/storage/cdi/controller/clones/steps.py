"""Brings one phase of a clone a step further. None says that the phase is over."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating
from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS, ResourceType
from kubecore.runtime import DONE, EventKind, EventRecorder, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.objects import described
from virtplane.storage.cdi.controller import claims, progress
from virtplane.storage.cdi.controller.clones import documents, plans, strategy
from virtplane.storage.cdi.controller.clones.choosing import Choosing
from virtplane.storage.cdi.controller.clones.lookups import Lookups
from virtplane.storage.cdi.controller.clones.plans import (
    CloneByDriver,
    CopyByPods,
    Phase,
    Prepare,
    Rebind,
    Restore,
    TakeSnapshot,
)
from virtplane.storage.cdi.controller.clones.readiness import SOURCE_IN_USE
from virtplane.storage.cdi.controller.clones.sources import CloneError, Source
from virtplane.storage.cdi.controller.populators.claim_events import ClaimEvents
from virtplane.storage.cdi.controller.populators.rebinding import begin_anew, rebind
from virtplane.storage.cdi.controller.workers.starting import (
    ERR_EXCEEDED_QUOTA,
    EXCEEDED_QUOTA,
    IN_USE_SECONDS,
    live,
)
from virtplane.storage.csi.parts import delete, patch, versioned

_REFUSALS = frozenset({400, 403, 422})


@dataclass(frozen=True, slots=True)
class Clone:
    """One clone: `target` is the claim that was asked for."""

    target: PersistentVolumeClaim
    source: Source
    preallocation: bool = False
    priority_class: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """Acts on the objects of clones. All methods raise StatusError, ConnectionFailed and UnfitDocument."""

    client: Client
    recorder: EventRecorder
    lookups: Lookups
    choosing: Choosing
    events: ClaimEvents

    async def run(self, clone: Clone, phase: Phase) -> Result | None:
        """Bring `phase` a step further; None where it is over. Raises CloneError."""
        match phase:
            case TakeSnapshot():
                return await self._take_snapshot(clone, phase)
            case Restore():
                return await self._restore(clone, phase)
            case CloneByDriver():
                return await self._clone_by_driver(clone, phase)
            case CopyByPods():
                return await self._copy(clone, phase)
            case Prepare():
                return await self._prepare(clone, phase)
            case Rebind():
                return await self._rebind(clone, phase)

    def tell(self, clone: Clone, kind: EventKind, reason: str, text: str) -> None:
        """Record an event on the target."""
        self.recorder.event(described(clone.target), kind, reason, text)

    async def _take_snapshot(self, clone: Clone, phase: TakeSnapshot) -> Result | None:
        target, namespace = clone.target, clone.source.namespace
        found = self.lookups.snapshot(namespace, phase.snapshot)
        if found is not None:
            _expect_own(found, target, "snapshot")
            return None if found.status.creation_time else DONE
        source = self._source(clone, phase.source)
        if source is None:
            return RequeueAfter(IN_USE_SECONDS)
        chosen = self.choosing.snapshot_class(target, source)
        if chosen is None:
            raise CloneError("no compatible volumesnapshotclass")
        name = strategy.selected_name(chosen)
        document = documents.temporary_snapshot(namespace, phase.source, target, name)
        return await self._create(clone, resources.VOLUME_SNAPSHOTS, document)

    async def _restore(self, clone: Clone, phase: Restore) -> Result | None:
        found = self._own_claim(clone, phase.claim["metadata"]["name"])
        if found is not None:
            return await self._made(clone, found)
        snapshot = self.lookups.snapshot(clone.source.namespace, phase.snapshot)
        if snapshot is None:
            raise CloneError("source snapshot does not exist")
        if not snapshot.status.ready_to_use:
            return DONE  # its event brings the target back
        document = documents.restored(phase.claim, snapshot)
        return await self._create(clone, PERSISTENT_VOLUME_CLAIMS, document)

    async def _clone_by_driver(self, clone: Clone, phase: CloneByDriver) -> Result | None:
        found = self._own_claim(clone, phase.claim["metadata"]["name"])
        if found is not None:
            return await self._made(clone, found)
        source = self._source(clone, phase.source)
        if source is None:
            return RequeueAfter(IN_USE_SECONDS)
        return await self._create(clone, PERSISTENT_VOLUME_CLAIMS, documents.cloned(phase.claim, source))

    async def _made(self, clone: Clone, claim: PersistentVolumeClaim) -> Result | None:
        """Whether the driver has made the volume; where it waits for a pod, the next phase has one."""
        self.events.pass_on(claim, clone.target)
        if claims.is_bound(claim):
            return None
        if claim.status.phase == claims.LOST:
            return await begin_anew(self.client, claim)
        found = self.lookups.settings.storage_class(claim.spec.storage_class_name)
        if found is None:
            raise CloneError("no storageclass for pvc")
        return None if found.waits_for_consumer else DONE

    async def _copy(self, clone: Clone, phase: CopyByPods) -> Result | None:
        found = self._own_claim(clone, phase.claim["metadata"]["name"])
        if found is None:
            document = documents.copied(
                phase.claim,
                phase.source,
                clone.target,
                preallocation=clone.preallocation,
                priority=clone.priority_class,
            )
            return await self._create(clone, PERSISTENT_VOLUME_CLAIMS, document)
        self.events.pass_on(found, clone.target)
        if found.status.phase == claims.LOST:
            return await begin_anew(self.client, found)
        if is_copied(found):
            return None
        is_running = claims.value(found, names.POD_PHASE) == claims.RUNNING
        return RequeueAfter(progress.SECONDS) if is_running else DONE

    async def _prepare(self, clone: Clone, phase: Prepare) -> Result | None:
        claim = self._own_claim(clone, phase.claim)
        if claim is None:
            return DONE  # its event brings the target back
        pod = self.lookups.pods.get(
            clone.source.namespace, cdi_names.preparation_pod(clone.target.metadata.uid)
        )
        if pod is not None:
            _expect_own(pod, clone.target, "pod")
        capacity, wanted = claim.status.capacity.get("storage"), Quantity.parse(phase.size)
        if capacity is not None and Quantity.parse(claims.requested(claim)) < wanted:
            change = {"op": "add", "path": "/spec/resources/requests/storage", "value": phase.size}
            await self._grow(clone, claim, change)
            return DONE
        is_ready = claims.is_bound(claim) and capacity is not None and Quantity.parse(capacity) >= wanted
        if pod is None:
            return None if is_ready else await self._create(clone, PODS, self._preparation(clone, claim))
        if (pod.has_ended or is_ready) and not pod.metadata.is_being_deleted:
            await delete(self.client, PODS, pod)
        return DONE

    async def _grow(self, clone: Clone, claim: PersistentVolumeClaim, change: JsonObject) -> None:
        try:
            await patch(self.client, PERSISTENT_VOLUME_CLAIMS, claim, versioned(claim, [change]))
        except StatusError as error:
            if error.code not in _REFUSALS:
                raise
            raise self._refused(clone, error) from error

    def _preparation(self, clone: Clone, claim: PersistentVolumeClaim) -> JsonObject:
        return documents.preparation_pod(self.lookups.settings.workers(), claim, clone.target)

    async def _rebind(self, clone: Clone, phase: Rebind) -> Result | None:
        if clone.target.spec.volume_name:
            return None
        claim = self._own_claim(clone, phase.claim)
        if claim is None:
            return DONE  # its event brings the target back
        if claim.status.phase == claims.LOST:
            return await begin_anew(self.client, claim)
        return await rebind(self.client, claim, clone.target, _is_whole)

    def _source(self, clone: Clone, name: str) -> PersistentVolumeClaim | None:
        """The claim that is cloned; None while it cannot be: it must hold its content, and be at rest."""
        found = self.lookups.claim(clone.source.namespace, name)
        if found is None or not claims.is_bound(found) or found.metadata.is_being_deleted:
            return None
        users = self.lookups.users(found)
        writing = users.writing()
        for pod in writing:
            self.tell(clone, "Warning", SOURCE_IN_USE, users.in_use(pod))
        return found if not writing and self.lookups.is_populated(found) else None

    def _own_claim(self, clone: Clone, name: str) -> PersistentVolumeClaim | None:
        found = self.lookups.claim(clone.source.namespace, name)
        if found is not None:
            _expect_own(found, clone.target, "claim")
        return found

    async def _create(self, clone: Clone, kind: ResourceType, document: JsonObject) -> Result:
        """Create a temporary object, as long as the target waits for it. Its event brings the target back.

        The cache may not know yet that the target is gone, or has what it wants: then nobody would remove it.
        """
        current = await live(self.client, clone.target)
        if current is None or not is_wanting(current):
            return DONE
        try:
            await self.client.create(kind, document, document["metadata"]["namespace"])
        except StatusError as error:
            if is_already_exists(error):
                return RequeueAfter(IN_USE_SECONDS)  # an earlier one goes, or the cache does not show it
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            raise self._refused(clone, error) from error
        return DONE

    def _refused(self, clone: Clone, error: StatusError) -> CloneError:
        if EXCEEDED_QUOTA in error.message:
            self.tell(clone, "Warning", ERR_EXCEEDED_QUOTA, error.message)
        return CloneError(error.message)


def is_wanting(target: PersistentVolumeClaim) -> bool:
    """Whether the target still waits for its volume, and what is made for it will be removed one day."""
    if target.spec.volume_name or claims.value(target, names.CLONE_PHASE) == plans.SUCCEEDED:
        return False
    return names.CLONE_POPULATOR_FINALIZER in target.metadata.finalizers


def is_copied(claim: PersistentVolumeClaim) -> bool:
    """Whether pods have filled the claim, and have told all that they have to tell."""
    if claims.value(claim, names.POD_PHASE) != claims.SUCCEEDED:
        return False
    told = claims.is_true(claim.metadata, names.PREALLOCATION) or claims.has(claim, names.CLONE_OF)
    return told or not claims.is_true(claim.metadata, names.PREALLOCATION_REQUESTED)


def _is_whole(claim: PersistentVolumeClaim) -> bool:
    """Whether the volume of a temporary claim may be given away, as it is now."""
    is_filled = is_copied(claim) if claims.has(claim, names.CLONE_REQUEST) else True
    return claims.is_bound(claim) and bool(claim.spec.volume_name) and is_filled


def _expect_own(obj: HasMetadata, target: PersistentVolumeClaim, what: str) -> None:
    if obj.metadata.labels.get(names.OWNED_BY_UID) != target.metadata.uid:
        raise CloneError(f"{what} {obj.metadata.namespace}/{obj.metadata.name} belongs to others")
