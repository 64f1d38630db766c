"""Runs importer pods for claims whose annotations name a source."""

from __future__ import annotations

import json
import logging
import re

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import finalizer_patch
from virtplane.storage.cdi.controller import claims, sources
from virtplane.storage.cdi.controller.pods import importer
from virtplane.storage.cdi.controller.pods.importer import Import
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers import observed
from virtplane.storage.cdi.controller.workers.keys import claims_of_pod, claims_of_scratch
from virtplane.storage.cdi.controller.workers.observed import Annotations, Observed
from virtplane.storage.cdi.controller.workers.pods import Pod, pod_informer
from virtplane.storage.cdi.controller.workers.starting import (
    RETRY_SECONDS,
    Workplace,
    bound_again,
    holds_name,
    is_own,
    live,
)
from virtplane.storage.csi.parts import patch

logger = logging.getLogger(__name__)

NAME = "import-controller"
IMPORT_FAILED = "ErrImportFailed"
IMPORT_SUCCEEDED = "ImportSucceeded"
TARGET_IN_USE = "ImportTargetInUse"
AWAITING_VDDK = "AwaitingVDDK"
_AWAITING_VDDK_MESSAGE = (
    f"waiting for {cdi_names.VDDK_CONFIG_MAP} configmap or {names.POD_VDDK_IMAGE} annotation for VDDK image"
)
_VDDK_NODE_SELECTOR = "vddk-node-selector"
COPIED_LABEL = re.compile(r"(?!cdi\.)([\w.]+\.kubevirt\.io|kubevirt\.io)/[\w.-]+")
"""Labels that an image may give to the claim that it fills. CDI's own ones say what CDI is to remove."""


class ImportController:
    """Reconciles the claims that are filled by importers, prime claims as well as others."""

    def __init__(
        self, client: Client, manager: Manager, recorder: EventRecorder, settings: Settings, namespace: str
    ) -> None:
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        pods = pod_informer(manager)
        self._work = Workplace(client, recorder, settings, pods, self._claims, namespace)
        self._client, self._settings = client, settings
        controller = Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(self._claims, claims_of_scratch)
        controller.watch(pods, claims_of_pod)
        for informer in settings.informers:
            controller.depend(informer)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Start, watch and remove the importer pod of a claim. Raises StatusError, ConnectionFailed."""
        try:
            claim = self._claims.get(*key)
        except UnfitDocument as error:
            logger.error("a claim cannot be decoded, so nothing is imported into it: %s", error)
            return DONE
        if claim is None or not is_import(claim):
            return DONE
        if claim.metadata.is_being_deleted:
            return await self._leave(claim)
        if not _is_to_be_worked_on(claim):
            return await self._finish(claim)
        if not claims.may_have_worker(claim, self._settings.honors_waiting):
            return DONE
        pod = self._work.pods.get(claim.metadata.namespace, importer.pod_name(claim))
        if pod is None:
            return await self._start(claim)
        if not is_own(pod, claim):
            return await self._work.cannot_start(claim, pod.metadata.name, "another pod has its name")
        return await self._watch(claim, pod)

    async def _start(self, claim: PersistentVolumeClaim) -> Result:
        """Create the pod. The cache may be older than the end of an earlier one: the claim is read again."""
        obstacle = self._work.obstacle(claim, TARGET_IN_USE)
        if obstacle is not None:
            return obstacle
        await self._work.delete_pods(
            pod for pod in self._work.own_pods(claim, names.IMPORTER) if pod.has_ended
        )
        current = await live(self._client, claim)
        if current is None or not _is_to_be_worked_on(current):
            return DONE
        wanted = await self._wanted(current)
        if wanted is None:
            waiting: Annotations = {
                names.IMPORT_POD: importer.pod_name(current),
                names.BOUND: claims.FALSE,
                names.BOUND_MESSAGE: _AWAITING_VDDK_MESSAGE,
                names.BOUND_REASON: AWAITING_VDDK,
            }
            await self._work.annotate(current, waiting)
            return RequeueAfter(RETRY_SECONDS)
        if importer.is_image_stream(current):
            finalizer = finalizer_patch(current.metadata, names.IMPORT_IMAGE_STREAM_FINALIZER, present=True)
            await patch(self._client, PERSISTENT_VOLUME_CLAIMS, current, finalizer)
        await self._work.annotate(current, {names.IMPORT_POD: importer.pod_name(current)})
        pod = importer.importer_pod(self._settings.workers(), current, wanted)
        return await self._work.create_pod(current, pod, _is_to_be_worked_on)

    async def _wanted(self, claim: PersistentVolumeClaim) -> Import | None:
        """What the pod depends on; None if the image of VDDK is not known. Raises StatusError."""
        image, selector = "", {}
        if importer.source_of(claim) == sources.VDDK:
            image = claims.value(claim, names.POD_VDDK_IMAGE) or await self._vddk_image()
            if not image:
                return None
            selector = await self._vddk_selector(claim)
        return Import(
            target=self._target(claim),
            overhead=self._settings.overhead_text(claim),
            has_scratch=importer.needs_scratch(claim),
            proxy=self._settings.proxy,
            vddk_image=image,
            vddk_node_selector=selector,
        )

    def _target(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """The claim that a prime claim is filled for, else the claim itself."""
        owner = claim.metadata.controller
        if names.POPULATOR_KIND not in claim.metadata.annotations or owner is None:
            return claim
        found = self._claims.get(claim.metadata.namespace, owner.name)
        return found if found is not None and found.metadata.uid == owner.uid else claim

    async def _vddk_image(self) -> str:
        found = await self._config_map(cdi_names.VDDK_CONFIG_MAP, self._work.namespace)
        return get_str(found, cdi_names.VDDK_IMAGE_KEY)

    async def _vddk_selector(self, claim: PersistentVolumeClaim) -> dict[str, str]:
        """The nodes that are near to what is imported, as the user's arguments say."""
        name = claims.value(claim, names.POD_VDDK_EXTRA_ARGS)
        if not name:
            return {}
        text = get_str(await self._config_map(name, claim.metadata.namespace), _VDDK_NODE_SELECTOR)
        try:
            found = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            logger.warning(
                "%s in config map %s/%s is no JSON object of texts; the pod may run on any node",
                _VDDK_NODE_SELECTOR,
                claim.metadata.namespace,
                name,
            )
            return {}
        return found

    async def _config_map(self, name: str, namespace: str) -> JsonObject:
        try:
            return get_object(await self._client.get(CONFIG_MAPS, name, namespace), "data")
        except StatusError as error:
            if is_not_found(error):
                return {}
            raise

    async def _watch(self, claim: PersistentVolumeClaim, pod: Pod) -> Result:
        """Tell in the claim what its pod does, and remove the pod when it has done its part."""
        if not await self._work.can_go_on(claim, pod, _is_to_be_worked_on):
            return DONE
        found = observed.of_importer(claim, pod)
        changes = bound_again(claim, AWAITING_VDDK) | found.annotations
        if observed.uses_scratch(claim, pod) and not pod.has_ended:
            changes |= await self._work.give_scratch(claim, pod)
        elif found.is_done and observed.uses_scratch(claim, pod):
            changes |= bound_again(claim, observed.CREATING_SCRATCH)
            changes[names.IMPORT_REQUIRES_SCRATCH] = claims.FALSE
        if not pod.has_ended:
            await self._work.give_proxy_authority(claim, pod)
        labels = {name: text for name, text in found.labels.items() if COPIED_LABEL.fullmatch(name)}
        if await self._work.annotate(claim, changes, labels):
            self._tell(claim, found)
        is_filled = found.annotations.get(names.POD_PHASE) == claims.SUCCEEDED
        retained = claims.is_true(claim.metadata, names.POD_RETAIN) or (is_filled and holds_name(claim))
        if found.must_start_anew or (found.is_done and not retained):
            await self._work.delete_pods([pod])
        return DONE

    def _tell(self, claim: PersistentVolumeClaim, found: Observed) -> None:
        if found.failure and found.annotations.get(names.RUNNING) != claims.TRUE:
            self._work.event(claim, "Warning", IMPORT_FAILED, found.failure)
        elif found.is_done and not found.failure:
            self._work.event(claim, "Normal", IMPORT_SUCCEEDED, "Import Successful")

    async def _finish(self, claim: PersistentVolumeClaim) -> Result:
        """Remove the pods of what is filled, or failed for good."""
        pods = self._work.own_pods(claim, names.IMPORTER)
        is_filled = claims.value(claim, names.POD_PHASE) == claims.SUCCEEDED
        await self._work.delete_pods(self._work.spent(claim, pods, is_filled=is_filled))
        if not pods:
            await self._release(claim)
        return DONE

    async def _leave(self, claim: PersistentVolumeClaim) -> Result:
        """Remove the pods of a claim that is being deleted: it cannot go while they use it."""
        pods = self._work.own_pods(claim, names.IMPORTER)
        await self._work.delete_pods(pods)
        if not pods:
            await self._release(claim)
        return DONE

    async def _release(self, claim: PersistentVolumeClaim) -> None:
        finalizer = finalizer_patch(claim.metadata, names.IMPORT_IMAGE_STREAM_FINALIZER, present=False)
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, claim, finalizer)


def is_import(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is to be filled by an importer."""
    return claims.has(claim, names.IMPORT_SOURCE) or claims.has(claim, names.IMPORT_ENDPOINT)


def _is_to_be_worked_on(claim: PersistentVolumeClaim) -> bool:
    """Whether an importer has still to do something, as far as is known now."""
    return claims.value(claim, names.POD_PHASE) != claims.SUCCEEDED and not claims.has_failed_for_good(claim)
