"""Makes the claims of DataVolumes, and follows how they are filled."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating, is_not_found
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, labels, resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.caches import owner_key
from virtplane.cluster.objects import AnyObject, controller_reference, owners_patch
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller import claims, progress
from virtplane.storage.cdi.controller.clones.sources import Source
from virtplane.storage.cdi.controller.datavolume import decisions, documents
from virtplane.storage.cdi.controller.datavolume.cloning import Cloning, Waiting
from virtplane.storage.cdi.controller.datavolume.concerned import INDEXERS, Concerned
from virtplane.storage.cdi.controller.datavolume.conditions import Problem
from virtplane.storage.cdi.controller.datavolume.decisions import Phase, Situation
from virtplane.storage.cdi.controller.datavolume.documents import Plan
from virtplane.storage.cdi.controller.datavolume.flows import CLAIM_CLONE, Flow, flow_of
from virtplane.storage.cdi.controller.datavolume.following import Following
from virtplane.storage.cdi.controller.datavolume.status import StatusWriter
from virtplane.storage.cdi.controller.settings import CLAIM_ADOPTION, Settings
from virtplane.storage.cdi.controller.workers.pods import pod_informer
from virtplane.storage.cdi.controller.workers.starting import (
    ERR_EXCEEDED_QUOTA,
    EXCEEDED_QUOTA,
    claim_patch,
)
from virtplane.storage.csi.parts import delete, members_patch, patch, versioned

logger = logging.getLogger(__name__)

ERR_CLAIM_NOT_VALID = "ErrClaimNotValid"
ERR_EXISTS = "ErrResourceExists"
ERR_MARKED_FOR_DELETION = "ErrResourceMarkedForDeletion"
_RETRY_SECONDS = 10.0
_REFUSALS = frozenset({400, 403, 422})
_INSTANCETYPE_LABELS = (
    labels.DEFAULT_INSTANCETYPE,
    labels.DEFAULT_INSTANCETYPE_KIND,
    labels.DEFAULT_PREFERENCE,
    labels.DEFAULT_PREFERENCE_KIND,
)


class DataVolumeController:
    """Reconciles the DataVolumes of one flow."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        settings: Settings,
        flow: Flow,
        scraper: progress.Progress,
        cloning: Cloning | None = None,
    ) -> None:
        """`cloning` is needed for a flow of clones."""
        self._client, self._settings, self._flow = client, settings, flow
        self._cloning = cloning
        self._status = StatusWriter(client, recorder)
        self._volumes = manager.informer(resources.DATA_VOLUMES, indexers=INDEXERS, struct=DataVolume)
        concerned = Concerned(self._volumes, settings)
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        pods = pod_informer(manager)
        has_sources = flow.source is not None and cloning is None
        self._sources = manager.informer(flow.source) if flow.source is not None and has_sources else None
        self._following = Following(client, flow, self._sources, pods, scraper)
        controller = Controller(flow.controller, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(self._volumes)
        controller.watch(self._claims, concerned.of_claim)
        for informer in settings.informers:
            controller.depend(informer)
        controller.watch(settings.classes, concerned.of_class)
        controller.watch(settings.profiles, concerned.of_profile)
        controller.watch(settings.volumes, concerned.of_volume)
        controller.depend(pods)
        if self._sources is not None:
            controller.watch(self._sources, owner_key(resources.DATA_VOLUMES.kind))
        if cloning is not None:
            cloning.watch(controller)
            controller.watch(cloning.references.informer, concerned.naming)
            controller.watch(self._claims, concerned.cloning)
            controller.watch(cloning.snapshots, concerned.cloning)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Bring one DataVolume a step further. Raises StatusError, ConnectionFailed."""
        try:
            volume, claim = self._volumes.get(*key), self._claims.get(*key)
        except UnfitDocument as error:
            logger.error("a DataVolume or its claim cannot be decoded, so it stays as it is: %s", error)
            return DONE
        await self._clean_up(key, volume)
        if volume is None or volume.metadata.is_being_deleted:
            return DONE
        clone = self._cloning.references.source(volume) if self._cloning is not None else None
        if flow_of(volume, clone) is not self._flow:
            return DONE
        if claim is None:
            return await self._make_claim(volume, clone)
        situation = self._situation(volume, claim, clone)
        if claim.metadata.is_being_deleted:
            text = f'Resource "{claim.metadata.name}" marked for deletion'
            self._status.warn(volume, ERR_MARKED_FOR_DELETION, text)
            return DONE  # the end of the claim brings the DataVolume back
        if not claim.metadata.is_controlled_by(volume.metadata):
            return await self._take_over(situation, claim)
        if await self._describe(situation):
            return DONE  # its event brings the DataVolume back
        return await self._follow(situation, claim)

    async def _clean_up(self, key: Key, volume: DataVolume | None) -> None:
        """Remove what does not go with a DataVolume of itself; one controller does. Raises StatusError."""
        if self._cloning is None or self._flow is not CLAIM_CLONE:
            return
        await self._cloning.remove_left(key, volume.metadata.uid if volume is not None else "")
        if volume is not None and volume.metadata.is_being_deleted:
            await self._cloning.clean_up(volume)

    def _situation(self, volume: DataVolume, claim: PersistentVolumeClaim, clone: Source | None) -> Situation:
        found = self._settings.class_or_default(claim.spec.storage_class_name)
        namespace = claim.metadata.namespace
        prime = self._claims.get(namespace, cdi_names.prime_claim(claim.metadata.uid))
        if prime is not None and not prime.metadata.is_controlled_by(claim.metadata):
            prime = None
        return Situation(
            volume=volume,
            flow=self._flow,
            claim=claim,
            prime=prime,
            storage_class=found,
            uses_populator=decisions.uses_populator(volume, self._settings.has_driver(found)),
            honors_waiting=self._settings.honors_waiting,
            may_adopt=decisions.may_adopt(volume, self._settings.has_gate(CLAIM_ADOPTION)),
            clone=clone,
        )

    async def _make_claim(self, volume: DataVolume, clone: Source | None) -> Result:
        """Make the claim, unless it will come from elsewhere. Raises StatusError."""
        asked = await self._asked(volume)
        if asked is None:
            return DONE
        if clone is not None:
            asked |= {"source": {str(clone.kind): {"namespace": clone.namespace, "name": clone.name}}}
        try:
            spec = self._rendered(volume, asked)
        except (rendering.RenderingError, UnfitDocument) as error:
            return await self._refuse(volume, error)
        found = self._settings.class_or_default(spec.get("storageClassName"))
        situation = Situation(
            volume=volume,
            flow=self._flow,
            storage_class=found,
            uses_populator=decisions.uses_populator(volume, self._settings.has_driver(found)),
            honors_waiting=self._settings.honors_waiting,
            clone=clone,
        )
        if await self._describe(situation):
            return DONE  # its event brings the DataVolume back
        if names.PRE_POPULATED in volume.metadata.annotations:
            await self._status.write(situation, decisions.phase(situation))
            return DONE
        return await self._create(situation, spec)

    async def _asked(self, volume: DataVolume) -> JsonObject | None:
        """The spec as its user wrote it: members that nobody knows are passed on. Raises StatusError."""
        try:
            found = await self._client.get(
                resources.DATA_VOLUMES, volume.metadata.name, volume.metadata.namespace
            )
        except StatusError as error:
            if is_not_found(error):
                return None
            raise
        return get_object(found, "spec") if meta.uid(found) == volume.metadata.uid else None

    def _rendered(self, volume: DataVolume, asked: JsonObject) -> JsonObject:
        """The spec of the claim. Raises RenderingError, UnfitDocument."""
        storage = self._settings.storage()
        if "storage" in asked and rendering.is_left_to_webhook(volume.metadata.labels, storage.config):
            return get_object(asked, "storage")
        return rendering.render_data_volume(asked, storage)

    async def _refuse(self, volume: DataVolume, error: rendering.RenderingError | UnfitDocument) -> Result:
        """Tell why there is no claim. Raises StatusError."""
        event = error.event if isinstance(error, rendering.RenderingError) else ""
        problem = Problem(ERR_CLAIM_NOT_VALID, str(error))
        if await self._status.write(Situation(volume, self._flow), Phase(""), problem) and event:
            self._status.warn(volume, ERR_CLAIM_NOT_VALID, event)
        waits = isinstance(error, rendering.NoStorageClass)
        return DONE if waits else RequeueAfter(_RETRY_SECONDS)

    async def _create(self, situation: Situation, spec: JsonObject) -> Result:
        """Create the source that the claim names, then the claim. Raises StatusError."""
        volume, kind = situation.volume, self._flow.source
        static: list[str] = []
        if names.CHECK_STATIC_VOLUME in volume.metadata.annotations:
            static = documents.static_volumes(volume, self._settings.volumes.list())
        annotations: dict[str, str] = {}
        if self._cloning is not None and not static:
            sized = await self._cloning.prepare(situation, spec)
            if isinstance(sized, Waiting):
                return await self._wait(situation, sized)
            spec, annotations = sized, self._cloning.claim_annotations(situation)
        plan = Plan(
            flow=self._flow,
            spec=spec,
            annotations=annotations,
            uses_populator=situation.uses_populator,
            preallocates=self._settings.preallocates,
            binds_at_once=not self._settings.honors_waiting,
            labels=self._settings.labels,
            static_volumes=static,
        )
        if kind is not None and situation.uses_populator and not static and self._cloning is None:
            source = documents.source_document(volume, self._flow, plan.preallocates, plan.labels)
            try:
                await self._client.create(kind, source, volume.metadata.namespace)
            except StatusError as error:
                if not is_already_exists(error):
                    raise
        try:
            await self._client.create(
                PERSISTENT_VOLUME_CLAIMS, documents.claim_document(volume, plan), volume.metadata.namespace
            )
        except StatusError as error:
            if is_already_exists(error):
                return DONE  # its event brings the DataVolume back
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            return await self._refused(situation, error.message)
        return DONE

    async def _wait(self, situation: Situation, waiting: Waiting) -> Result:
        """Tell why a clone cannot be made yet. Raises StatusError."""
        if waiting.problem is not None:
            phase = waiting.phase or Phase(situation.volume.status.phase)
            await self._status.write(situation, phase, waiting.problem)
        return waiting.result

    async def _refused(self, situation: Situation, text: str) -> Result:
        """Tell that the API server does not take the claim, and try again later. Raises StatusError."""
        is_quota = EXCEEDED_QUOTA in text
        reason = ERR_EXCEEDED_QUOTA if is_quota else ERR_CLAIM_NOT_VALID
        problem = Problem(reason, text, is_refusal=not is_quota)
        if await self._status.write(situation, Phase(decisions.PENDING), problem):
            self._status.warn(situation.volume, reason, text)
        return RequeueAfter(_RETRY_SECONDS)

    async def _take_over(self, situation: Situation, claim: PersistentVolumeClaim) -> Result:
        """Become the owner of a claim that holds the content already. Raises StatusError."""
        volume = situation.volume
        if claim.metadata.controller is not None or not decisions.is_populated(situation):
            text = f'Resource "{claim.metadata.name}" already exists and is not managed by DataVolume'
            self._status.warn(volume, ERR_EXISTS, text)
            return DONE  # a change of the claim brings the DataVolume back
        owner = controller_reference(volume, resources.DATA_VOLUMES)
        operations = owners_patch(claim, [*claim.metadata.owner_references, owner])
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        return DONE

    async def _describe(self, situation: Situation) -> bool:
        """Write how the DataVolume is filled into its metadata; whether that was news. Raises StatusError."""
        volume, claim = situation.volume, situation.claim
        before = volume.metadata
        wanted = {names.USE_POPULATOR: claims.TRUE if situation.uses_populator else claims.FALSE}
        if claim is not None and claims.is_bound(claim) and decisions.is_populated_for(claim, volume):
            wanted[names.PRE_POPULATED] = claim.metadata.name
        if self._cloning is not None:
            wanted |= self._cloning.marks(situation)
        operations = versioned(
            volume,
            members_patch(
                "/metadata",
                {"annotations": dict(before.annotations), "labels": dict(before.labels)},
                {
                    "annotations": {**before.annotations, **wanted},
                    "labels": {**await self._imported_labels(situation), **before.labels},
                },
            ),
        )
        if operations and _lacks_resources(volume):
            # CDI writes the whole spec, in which this member is always there.
            operations.append({"op": "add", "path": "/spec/storage/resources", "value": {}})
        await patch(self._client, resources.DATA_VOLUMES, volume, operations)
        return bool(operations)

    async def _imported_labels(self, situation: Situation) -> Mapping[str, str]:
        """The instance type and the preference that a container image names, or what is cloned has."""
        volume, claim = situation.volume, situation.claim
        source = volume.spec.source
        if any(name in volume.metadata.labels for name in _INSTANCETYPE_LABELS):
            return {}
        if self._cloning is not None:
            given = await self._cloning.labels(situation)
        elif claim is None or source is None or source.registry is None:
            return {}
        else:
            given = claim.metadata.labels
        return {name: given[name] for name in _INSTANCETYPE_LABELS if name in given}

    async def _follow(self, situation: Situation, claim: PersistentVolumeClaim) -> Result:
        """Bring the filling of the claim a step further, and tell how far it is. Raises StatusError."""
        volume = situation.volume
        if not await self._following.is_expected(volume, claim):
            return DONE
        if await self._following.stage(situation, claim):
            return DONE
        is_filled = decisions.is_populated(situation)
        if self._cloning is not None and not is_filled and await self._cloning.follow(situation, claim):
            return DONE  # its event brings the DataVolume back
        wanted = decisions.phase(situation)
        await self._status.write(situation, wanted, known=await self._following.percent(situation, claim))
        if wanted.name == decisions.SUCCEEDED and volume.status.phase == decisions.SUCCEEDED:
            await self._complete(volume, claim)
        running = wanted.name == self._flow.running_phase and self._flow.has_progress
        return RequeueAfter(progress.SECONDS) if running and not situation.uses_populator else DONE

    async def _complete(self, volume: DataVolume, claim: PersistentVolumeClaim) -> None:
        """What is done once the content is there: the source goes. Raises StatusError."""
        populated = volume.metadata.annotations.get(names.POPULATED_FOR)
        if populated is not None:
            operations = claim_patch(claim, {names.POPULATED_FOR: populated})
            await patch(self._client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        if self._cloning is not None:
            await self._cloning.clean_up(volume)
        if self._sources is None or self._flow.source is None or not claims.is_bound(claim):
            return
        name = self._flow.source_name(volume.metadata.uid)
        document = self._sources.get(volume.metadata.namespace, name)
        if document is None:
            return
        source = decode(AnyObject, document)
        if source.metadata.is_controlled_by(volume.metadata):
            await delete(self._client, self._flow.source, source)


def _lacks_resources(volume: DataVolume) -> bool:
    return volume.spec.storage is not None and volume.spec.storage.resources is None
