"""Fills claims that name a source: a prime claim first, whose volume they then get."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Generic, TypeVar

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.cluster.objects import described
from virtplane.storage.cdi.controller import claims, progress
from virtplane.storage.cdi.controller.pods import importer
from virtplane.storage.cdi.controller.populators import decisions, rebinding
from virtplane.storage.cdi.controller.populators.claim_events import ClaimEvents, Event
from virtplane.storage.cdi.controller.populators.decisions import Start
from virtplane.storage.cdi.controller.populators.kinds import HasSpec, SourceKind
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers import checkpoints
from virtplane.storage.cdi.controller.workers.checkpoints import Stages
from virtplane.storage.cdi.controller.workers.pods import pod_informer
from virtplane.storage.cdi.controller.workers.starting import claim_patch, is_own
from virtplane.storage.csi.parts import delete, patch

logger = logging.getLogger(__name__)

Source = TypeVar("Source", bound=HasSpec)

CREATED_PRIME = "CreatedPVCPrimeSuccessfully"
ERR_CREATING_PRIME = "ErrCreatingPVCPrime"
RETAINED_PRIME = "RetainedPVCPrime"
IMPORT_PAUSED = "ImportPaused"
RETAINED_MESSAGE = "PVC Prime retained in Lost state for debugging purposes"


class PopulatorController(Generic[Source]):
    """Reconciles the claims that name a source of one kind."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        settings: Settings,
        kind: SourceKind[Source],
        scraper: progress.Progress,
    ) -> None:
        self._client, self._recorder, self._settings = client, recorder, settings
        self._kind, self._progress = kind, scraper
        self._claims: Informer[PersistentVolumeClaim] = manager.informer(
            PERSISTENT_VOLUME_CLAIMS,
            indexers={"source": _named_source, "class": _class_of},
            struct=PersistentVolumeClaim,
        )
        self._sources: Informer[Source] = manager.informer(kind.resource, struct=kind.struct)
        self._pods = pod_informer(manager)
        self._events = ClaimEvents(manager, recorder)
        controller = Controller(kind.controller, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(self._claims, self._targets)
        controller.watch(self._sources, self._of_source)
        controller.watch(settings.classes, self._of_class)
        controller.watch(self._events.informer, self._of_event)
        controller.depend(self._pods)
        for informer in settings.informers:
            controller.depend(informer)
        manager.add(controller)

    def _targets(self, claim: PersistentVolumeClaim) -> list[Key]:
        """The claim itself, or the one that it is the prime claim of."""
        namespace, owner = claim.metadata.namespace, claim.metadata.controller
        if owner is not None and owner.kind == PERSISTENT_VOLUME_CLAIMS.kind:
            return [(namespace, owner.name)]
        return [(namespace, claim.metadata.name)] if self._is_target(claim) else []

    def _of_source(self, source: Source) -> list[Key]:
        metadata = source.metadata
        name = f"{self._kind.resource.kind}/{metadata.namespace}/{metadata.name}"
        return _keys(self._claims.by_index("source", name))

    def _of_class(self, storage_class: StorageClass) -> list[Key]:
        found = self._claims.by_index("class", storage_class.metadata.name)
        return _keys(claim for claim in found if self._is_target(claim))

    def _of_event(self, event: Event) -> list[Key]:
        """The target of the prime claim that an event is about."""
        try:
            claim = self._claims.get(event.involved_object.namespace, event.involved_object.name)
        except UnfitDocument:
            return []  # its controllers say so
        is_prime = claim is not None and claims.has(claim, names.POPULATOR_KIND)
        return self._targets(claim) if claim is not None and is_prime else []

    def _is_target(self, claim: PersistentVolumeClaim) -> bool:
        return decisions.names_source(claim, self._kind.resource.kind)

    async def reconcile(self, key: Key) -> Result:
        """Bring one claim a step nearer to its content. Raises StatusError, ConnectionFailed."""
        try:
            target = self._claims.get(*key)
            if target is None or target.metadata.is_being_deleted or not self._is_target(target):
                return DONE  # what was made for it goes with it
            prime = self._claims.get(target.metadata.namespace, cdi_names.prime_claim(target.metadata.uid))
            source = self._source(target)
        except UnfitDocument as error:
            logger.error("a claim or its source cannot be decoded, so it is not filled: %s", error)
            return DONE
        if prime is None:
            if target.spec.volume_name or source is None:
                return DONE
            return await self._begin(target, source)
        if not prime.metadata.is_controlled_by(target.metadata):
            self._event(target, "Warning", ERR_CREATING_PRIME, f"{prime.metadata.name} belongs to others")
            return DONE
        if target.spec.volume_name:
            return await self._end(target, prime)
        return await self._go_on(target, prime, self._kind.stages(source) if source is not None else Stages())

    def _source(self, target: PersistentVolumeClaim) -> Source | None:
        reference = target.spec.data_source_ref
        return self._sources.get(target.metadata.namespace, reference.name) if reference is not None else None

    async def _begin(self, target: PersistentVolumeClaim, source: Source) -> Result:
        """Make the prime claim. Raises StatusError."""
        found = self._settings.storage_class(target.spec.storage_class_name)
        possible = decisions.start(target, found)
        if possible is Start.IN_TREE and found is not None:
            logger.warning(
                "can't use populator for PVC %s/%s with in-tree storage class %s",
                target.metadata.namespace,
                target.metadata.name,
                found.provisioner,
            )
        if possible is not Start.READY:
            return DONE  # a change of the class or of the claim brings it back
        given = self._kind.annotations(source, self._settings.preallocates)
        document = decisions.prime_claim(target, self._kind.resource.kind, given, self._settings.labels)
        first = checkpoints.next_stage(decode(PersistentVolumeClaim, document), self._kind.stages(source))
        document["metadata"]["annotations"] |= first
        try:
            await self._client.create(PERSISTENT_VOLUME_CLAIMS, document, target.metadata.namespace)
        except StatusError as error:
            if is_already_exists(error):
                return DONE  # its event brings the target back
            self._event(target, "Warning", ERR_CREATING_PRIME, error.message)
            raise
        self._event(target, "Normal", CREATED_PRIME, "PVC Prime created successfully")
        return DONE

    async def _go_on(
        self, target: PersistentVolumeClaim, prime: PersistentVolumeClaim, stages: Stages
    ) -> Result:
        """Follow the prime claim until its volume is whole."""
        stage = checkpoints.next_stage(prime, stages)
        operations = claim_patch(prime, stage)
        if operations:
            await patch(self._client, PERSISTENT_VOLUME_CLAIMS, prime, operations)
            if names.CHECKPOINT_CURRENT not in stage and names.CHECKPOINT_DONE not in stage:
                text = f"Multistage import into PVC {target.metadata.name} is paused"
                self._event(target, "Normal", IMPORT_PAUSED, text)
            return DONE  # its event brings the target back
        is_news = await self._mirror(target, prime)
        if decisions.may_be_given(prime):
            # Both claims are read anew: what was just said in the target need not come back first.
            return await self._rebind(target, prime)
        if is_news:
            return DONE
        if prime.status.phase == claims.LOST:
            return await rebinding.begin_anew(self._client, prime)
        is_running = claims.value(prime, names.POD_PHASE) == claims.RUNNING
        return RequeueAfter(progress.SECONDS) if is_running and self._kind.has_progress else DONE

    async def _mirror(self, target: PersistentVolumeClaim, prime: PersistentVolumeClaim) -> bool:
        """Say in the target how far the prime claim is; whether that was news."""
        message = self._events.pass_on(prime, target)
        changes = decisions.mirrored(target, prime, message, await self._percent(target, prime))
        operations = claim_patch(target, changes, decisions.copied_labels(prime))
        written = await patch(self._client, PERSISTENT_VOLUME_CLAIMS, target, operations)
        phase = claims.value(prime, names.POD_PHASE)
        if written is not None and phase != claims.value(target, names.POD_PHASE):
            outcomes, name = self._kind.outcomes, target.metadata.name
            if phase == claims.FAILED:
                self._event(target, "Warning", outcomes.failed[0], outcomes.failed[1].format(name))
            elif claims.is_filled(prime):
                self._event(target, "Normal", outcomes.succeeded[0], outcomes.succeeded[1].format(name))
        return bool(operations)

    async def _percent(self, target: PersistentVolumeClaim, prime: PersistentVolumeClaim) -> str | None:
        if not self._kind.has_progress:
            return None
        phase = claims.value(prime, names.POD_PHASE)
        if phase == claims.SUCCEEDED:
            return progress.COMPLETE
        if phase != claims.RUNNING:
            return None
        pod = self._pods.get(prime.metadata.namespace, importer.pod_name(prime))
        if pod is None or not is_own(pod, prime) or not pod.status.pod_ip:
            return None
        return await self._progress.percent(pod.status.pod_ip, target.metadata.uid)

    async def _rebind(self, target: PersistentVolumeClaim, prime: PersistentVolumeClaim) -> Result:
        """Give the prime claim's volume to the target. Raises StatusError."""

        def given() -> None:
            if claims.is_true(prime.metadata, names.POD_RETAIN):
                self._event(target, "Warning", RETAINED_PRIME, RETAINED_MESSAGE)

        return await rebinding.rebind(self._client, prime, target, decisions.may_be_given, given)

    async def _end(self, target: PersistentVolumeClaim, prime: PersistentVolumeClaim) -> Result:
        """The target has its volume: say the last, then the prime claim goes."""
        if await self._mirror(target, prime):
            return DONE
        if not claims.is_true(prime.metadata, names.POD_RETAIN) and not prime.metadata.is_being_deleted:
            await delete(self._client, PERSISTENT_VOLUME_CLAIMS, prime)
        return DONE

    def _event(self, target: PersistentVolumeClaim, kind: str, reason: str, text: str) -> None:
        self._recorder.event(described(target), "Warning" if kind == "Warning" else "Normal", reason, text)


def _named_source(claim: PersistentVolumeClaim) -> Iterable[str]:
    reference = claim.spec.data_source_ref
    if reference is None:
        return []
    return [f"{reference.kind}/{claim.metadata.namespace}/{reference.name}"]


def _class_of(claim: PersistentVolumeClaim) -> Iterable[str]:
    return [claim.spec.storage_class_name] if claim.spec.storage_class_name else []


def _keys(found: Iterable[PersistentVolumeClaim]) -> list[Key]:
    return [(claim.metadata.namespace, claim.metadata.name) for claim in found]
