"""Runs upload servers for claims that are upload targets, or targets of clones by pods."""

from __future__ import annotations

import logging

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICES
from kubecore.runtime import DONE, Controller, EventRecorder, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import AnyObject
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.pods import cloner, upload
from virtplane.storage.cdi.controller.pods.upload import Upload
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers import observed
from virtplane.storage.cdi.controller.workers.certificates import Issuer
from virtplane.storage.cdi.controller.workers.keys import claims_of_pod, claims_of_scratch
from virtplane.storage.cdi.controller.workers.observed import Observed
from virtplane.storage.cdi.controller.workers.pods import Pod, pod_informer
from virtplane.storage.cdi.controller.workers.starting import IN_USE_SECONDS, Workplace, is_own, live
from virtplane.storage.csi.parts import delete

logger = logging.getLogger(__name__)

NAME = "upload-controller"
UPLOAD_FAILED = "UploadFailed"
UPLOAD_SUCCEEDED = "UploadSucceeded"
TARGET_IN_USE = "UploadTargetInUse"


class UploadController:
    """Reconciles the claims that are filled by uploads, prime claims as well as others."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        settings: Settings,
        issuer: Issuer,
        namespace: str,
    ) -> None:
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        pods = pod_informer(manager)
        self._work = Workplace(client, recorder, settings, pods, self._claims, namespace)
        self._client, self._settings, self._issuer = client, settings, issuer
        controller = Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(self._claims, claims_of_scratch)
        controller.watch(pods, claims_of_pod)
        for informer in settings.informers:
            controller.depend(informer)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Start, watch and remove the upload pod of a claim. Raises StatusError, ConnectionFailed."""
        try:
            claim = self._claims.get(*key)
        except UnfitDocument as error:
            logger.error("a claim cannot be decoded, so nothing is uploaded into it: %s", error)
            return DONE
        if claim is None:
            return DONE
        if not is_upload(claim):
            await self._end(claim)
            return DONE
        if claim.metadata.is_being_deleted:  # it cannot go while its pod uses it; the rest goes with it
            await self._work.delete_pods(self._work.own_pods(claim, names.UPLOAD_SERVER))
            return DONE
        if not _is_waiting(claim):
            await self._finish(claim)
            return DONE
        if not claims.may_have_worker(claim, self._settings.honors_waiting):
            return DONE
        pod = self._work.pods.get(claim.metadata.namespace, cdi_names.upload_pod(claim.metadata.name))
        if pod is None:
            return await self._start(claim)
        if not is_own(pod, claim):
            return await self._work.cannot_start(claim, pod.metadata.name, "another pod has its name")
        return await self._watch(claim, pod)

    async def _start(self, claim: PersistentVolumeClaim) -> Result:
        """Create the service and the pod, which waits for its certificate.

        The cache may be older than the end of an earlier pod: the claim is read again.
        """
        obstacle = self._work.obstacle(claim, TARGET_IN_USE)
        if obstacle is not None:
            return obstacle
        current = await live(self._client, claim)
        if current is None or not _is_waiting(current):
            return DONE
        workers, is_clone = self._settings.workers(), _is_clone(current)
        await self._work.ensure(SERVICES, upload.upload_service(workers, current))
        tls = self._settings.tls
        wanted = Upload(
            overhead=self._settings.overhead_text(current),
            deadline=self._issuer.deadline(),
            client=_client_name(current),
            has_scratch=not is_clone,
            ciphers=",".join(tls.ciphers),
            min_tls_version=tls.min_version,
        )
        pod = upload.upload_pod(workers, current, wanted)
        return await self._work.create_pod(current, pod, _is_waiting)

    async def _give_certificate(self, claim: PersistentVolumeClaim, pod: Pod) -> Result:
        """Make the secret that a pod needs to start. Raises NoAuthority, BadLifetime, StatusError.

        The secret goes with its pod. One of an earlier pod is in the way until it is gone.
        """
        service = cdi_names.upload_service(claim.metadata.name)
        data = await self._issuer.issue(service, claim.metadata.namespace)
        secret = upload.certificate_secret(self._settings.workers(), pod.metadata, data)
        try:
            await self._client.create(SECRETS, secret, claim.metadata.namespace)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            return RequeueAfter(IN_USE_SECONDS)
        return DONE

    async def _watch(self, claim: PersistentVolumeClaim, pod: Pod) -> Result:
        """Tell in the claim what its pod does, and remove the pod when it has done its part."""
        if not await self._work.can_go_on(claim, pod, _is_waiting):
            return DONE
        found = observed.of_upload_server(claim, pod)
        if observed.uses_scratch(claim, pod) and not pod.has_ended:
            await self._work.give_scratch(claim, pod)
        if await self._work.annotate(claim, found.annotations):
            self._tell(claim, pod, found)
        if found.must_start_anew:
            await self._work.delete_pods([pod])
        elif found.is_done:
            await self._finish(claim)
        elif pod.is_pending and not pod.metadata.is_being_deleted:
            return await self._give_certificate(claim, pod)
        return DONE

    def _tell(self, claim: PersistentVolumeClaim, pod: Pod, found: Observed) -> None:
        if pod.status.phase == claims.FAILED:
            self._work.event(claim, "Warning", UPLOAD_FAILED, f"Upload into {claim.metadata.name} failed")
        elif found.is_done and not _is_clone(claim):
            self._work.event(claim, "Normal", UPLOAD_SUCCEEDED, "Upload Successful")

    async def _finish(self, claim: PersistentVolumeClaim) -> None:
        """Remove what was made for the upload. Raises StatusError."""
        pods = self._work.own_pods(claim, names.UPLOAD_SERVER)
        if pods and not claims.is_true(claim.metadata, names.POD_RETAIN):
            await self._remove_service(claim)  # without pods it went before the last one
        await self._work.delete_pods(self._work.spent(claim, pods, is_filled=True))

    async def _end(self, claim: PersistentVolumeClaim) -> None:
        """Take the upload server from a claim that is no upload target any more. Raises StatusError.

        A claim that never was one has no such pod, and costs no request.
        """
        pods = self._work.own_pods(claim, names.UPLOAD_SERVER)
        if not pods or claims.is_true(claim.metadata, names.POD_RETAIN):
            return
        await self._remove_service(claim)
        await self._work.delete_pods(pods)

    async def _remove_service(self, claim: PersistentVolumeClaim) -> None:
        """Delete the service that was made for `claim`, if it is there. Raises StatusError."""
        name = cdi_names.upload_service(claim.metadata.name)
        try:
            found = decode(AnyObject, await self._client.get(SERVICES, name, claim.metadata.namespace))
        except StatusError as error:
            if is_not_found(error):
                return
            raise
        if found.metadata.is_controlled_by(claim.metadata):
            await delete(self._client, SERVICES, found)


def is_upload(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is to be filled by an upload server."""
    return claims.has(claim, names.UPLOAD_TARGET) or _is_clone(claim)


def _is_waiting(claim: PersistentVolumeClaim) -> bool:
    """Whether something has still to be uploaded, as far as is known now."""
    return claims.value(claim, names.POD_PHASE) != claims.SUCCEEDED


def _client_name(claim: PersistentVolumeClaim) -> str:
    """From whom the upload server takes what it gets: the upload proxy, or the pod with the source."""
    source = cloner.requested_source(claim)
    if source is None:
        return cdi_names.UPLOAD_CLIENT_NAME
    return cloner.client_name(*source, claim)


def _is_clone(claim: PersistentVolumeClaim) -> bool:
    return claims.has(claim, names.CLONE_REQUEST)
