"""Runs the pods that send the source of a clone to the upload server of what it is copied into."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS
from kubecore.runtime import DONE, Controller, EventKind, EventRecorder, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.deadlines import until_deadline
from virtplane.cluster.objects import described, finalizer_patch
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.clones.lookups import Lookups
from virtplane.storage.cdi.controller.clones.readiness import SOURCE_IN_USE
from virtplane.storage.cdi.controller.clones.sources import CloneError
from virtplane.storage.cdi.controller.clones.strategy import VALIDATION_FAILED
from virtplane.storage.cdi.controller.clones.tokens import NoSigningKey, SigningKey
from virtplane.storage.cdi.controller.pods import cloner
from virtplane.storage.cdi.controller.pods.cloner import Copy
from virtplane.storage.cdi.controller.workers import copies, observed
from virtplane.storage.cdi.controller.workers.observed import Annotations
from virtplane.storage.cdi.controller.workers.pods import Pod
from virtplane.storage.cdi.controller.workers.starting import (
    IN_USE_SECONDS,
    RETRY_SECONDS,
    Workplace,
    claim_patch,
    live,
)
from virtplane.storage.cdi.tokens import InvalidToken
from virtplane.storage.csi.parts import delete, patch

logger = logging.getLogger(__name__)

NAME = "clone-controller"
SUCCEEDED = "CloneSucceeded"
WITHOUT_SOURCE = "CloneWithoutSource"
PATIENCE_SECONDS = 60.0
"""How long one of the two pods may have ended before the other one has."""
_REFUSALS = frozenset({400, 403, 404, 422})
_BY_TARGET = "copied into"
"""Pods by ``namespace/name`` of the claim that they send something to."""


class ClientIssuer(Protocol):
    """Who issues the certificates by which upload servers know their clients."""

    async def issue_client(self, name: str) -> dict[str, str]:
        """``tls.crt`` and ``tls.key`` for a common name, encoded as in secrets. Raises StatusError."""

    async def server_authority(self) -> str:
        """Whom clients trust as upload servers (PEM). Raises StatusError."""


@dataclass(slots=True)
class _Patience:
    """How long something has been so, as far as this process has seen it."""

    since: dict[str, float] = field(default_factory=dict)

    def left(self, uid: str) -> float:
        """The seconds until it has been so for too long; 0 once it has."""
        now = asyncio.get_running_loop().time()
        return max(0.0, self.since.setdefault(uid, now) + PATIENCE_SECONDS - now)

    def forget(self, uid: str) -> None:
        """It is not so any more."""
        self.since.pop(uid, None)


class CloneController:
    """Reconciles the claims into which pods copy other claims."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        recorder: EventRecorder,
        lookups: Lookups,
        issuer: ClientIssuer,
        key: SigningKey,
        namespace: str,
    ) -> None:
        """`namespace` is that of the installation."""
        self._client, self._lookups, self._issuer, self._key = client, lookups, issuer, key
        self._work = Workplace(client, recorder, lookups.settings, lookups.pods, lookups.claims, namespace)
        self._patience = _Patience()
        lookups.pods.add_index(_BY_TARGET, _target_of)
        controller = Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(lookups.claims)
        controller.watch(lookups.pods, _key_of_target)
        for informer in lookups.informers:
            controller.depend(informer)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Start, watch and remove the pod that sends the source. Raises StatusError, ConnectionFailed."""
        try:
            return await self._reconcile(key)
        except UnfitDocument as error:
            logger.error("a claim cannot be decoded, so nothing is copied into it: %s", error)
            return DONE

    async def _reconcile(self, key: Key) -> Result:
        target = self._lookups.claim(*key)
        uid = target.metadata.uid if target is not None else ""
        await self._remove_others(key, uid)
        wanted = cloner.requested_source(target) if target is not None else None
        if target is None or wanted is None:
            return DONE
        pod = self._own_pod(target, wanted[0])
        is_over = target.metadata.is_being_deleted or claims.has(target, names.CLONE_OF)
        if is_over or target.status.phase == claims.LOST:
            return await self._end(target, pod)
        if not claims.is_bound(target):
            return DONE
        if claims.value(target, names.POD_PHASE) == claims.SUCCEEDED:
            return await self._complete(target, pod)
        if pod is not None:
            return await self._watch(target, pod)
        if not claims.is_true(target.metadata, names.POD_READY):
            return DONE  # the upload server is on its way
        return await self._start(target, wanted)

    def _own_pod(self, target: PersistentVolumeClaim, namespace: str) -> Pod | None:
        pods = self._lookups.pods.by_index(_BY_TARGET, _name(target))
        name = copies.pod_name(target)
        mine = (each for each in pods if each.metadata.name == name)
        return next((each for each in mine if each.metadata.namespace == namespace), None)

    async def _remove_others(self, key: Key, uid: str) -> None:
        """Remove pods of an earlier claim with this name: nothing else does. The cache may be old."""
        name = "/".join(key)
        others = [
            pod
            for pod in self._lookups.pods.by_index(_BY_TARGET, name)
            if pod.metadata.name != copies.pod_name_of(uid) and not pod.metadata.is_being_deleted
        ]
        if not others:
            return
        current = await copies.current_uid(self._client, key)
        expected = copies.pod_name_of(current)
        await self._work.delete_pods(pod for pod in others if pod.metadata.name != expected)

    async def _start(self, target: PersistentVolumeClaim, wanted: tuple[str, str]) -> Result:
        """Create the pod, once the source may be read."""
        source = self._lookups.claim(*wanted)
        is_foreign = wanted[0] != target.metadata.namespace
        if is_foreign and not claims.has(target, names.EXTENDED_CLONE_TOKEN):
            return RequeueAfter(IN_USE_SECONDS)
        try:
            # First of all: whoever has no right to the source is not told whether it is there.
            await self._expect_rights(wanted, source, target)
            if source is None or source.metadata.is_being_deleted:
                self._tell(target, "Warning", WITHOUT_SOURCE, f"The source pvc {wanted[1]} doesn't exist")
                return RequeueAfter(IN_USE_SECONDS)
            if not self._lookups.is_populated(source):
                return RequeueAfter(IN_USE_SECONDS)
            copies.expect_fit(source, target, self._lookups.settings.storage())
        except CloneError as error:
            self._tell(target, "Warning", VALIDATION_FAILED, str(error))
            return RequeueAfter(RETRY_SECONDS)
        users = self._lookups.users(source)
        writing = users.writing()
        for each in writing:
            self._tell(target, "Warning", SOURCE_IN_USE, users.in_use(each))
        if writing:
            return RequeueAfter(IN_USE_SECONDS)
        if await self._announce(target, source):
            return DONE  # its event brings the target back
        return await self._create(target, source)

    async def _expect_rights(
        self, wanted: tuple[str, str], source: PersistentVolumeClaim | None, target: PersistentVolumeClaim
    ) -> None:
        """Raise CloneError unless the source is in the same namespace, or a token allows it to be read."""
        if wanted[0] == target.metadata.namespace:
            return
        permission = copies.permission(wanted, source, target)
        token = claims.value(target, names.EXTENDED_CLONE_TOKEN)
        try:
            (await self._key.tokens()).expect(token, permission, target.metadata.uid)
        except (InvalidToken, NoSigningKey) as error:
            raise CloneError(f"error verifying token: {error}") from error

    async def _announce(self, target: PersistentVolumeClaim, source: PersistentVolumeClaim) -> bool:
        """Write down that there will be a pod to remove; whether that was news. Raises StatusError."""
        client = cloner.client_name(source.metadata.namespace, source.metadata.name, target)
        said: Annotations = {
            names.SOURCE_CLONE_POD_NAME: copies.pod_name(target),
            names.UPLOAD_CLIENT_NAME: client,
        }
        finalizer = finalizer_patch(target.metadata, names.CLONE_SOURCE_FINALIZER, present=True)
        operations = [*claim_patch(target, said), *finalizer]
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, target, operations)
        return bool(operations)

    async def _create(self, target: PersistentVolumeClaim, source: PersistentVolumeClaim) -> Result:
        """Create the pod. The cache may be older than the end of an earlier one: the claim is read again."""
        current = await live(self._client, target)
        is_waiting = current is not None and names.CLONE_SOURCE_FINALIZER in current.metadata.finalizers
        if current is None or not is_waiting or claims.value(current, names.POD_PHASE) == claims.SUCCEEDED:
            return DONE
        copy = Copy(source, current, await self._issuer.server_authority())
        pod = cloner.source_pod(self._lookups.settings.workers(), copy)
        try:
            await self._client.create(PODS, pod, source.metadata.namespace)
        except StatusError as error:
            if is_already_exists(error):
                return await self._taken(current, copy)
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            return await self._work.cannot_start(target, copy.pod_name, error.message)
        return DONE

    async def _taken(self, target: PersistentVolumeClaim, copy: Copy) -> Result:
        """The pod is there: an earlier one that goes, one that the cache does not show, or somebody's."""
        found = self._lookups.pods.get(copy.source.metadata.namespace, copy.pod_name)
        if found is None or _name(target) in _target_of(found):
            return RequeueAfter(IN_USE_SECONDS)
        return await self._work.cannot_start(target, copy.pod_name, "another pod has its name")

    async def _watch(self, target: PersistentVolumeClaim, pod: Pod) -> Result:
        """Give the pod its certificate, and tell in the target what it does."""
        uid = pod.metadata.uid
        if pod.has_ended:
            # Its server may have begun anew, after a crash at the very end: then it waits for what comes.
            is_lost = pod.status.phase == claims.FAILED
            left = 0.0 if is_lost else self._patience.left(uid)
            if left > 0:
                await self._work.annotate(target, observed.of_clone_source(target, pod).annotations)
                return RequeueAfter(left)
            await self._work.delete_pods([pod])
            self._patience.forget(uid)
            return DONE
        await self._work.annotate(target, observed.of_clone_source(target, pod).annotations)
        if not _runs(pod) and not pod.metadata.is_being_deleted:
            await self._certify(target, pod)
            return RequeueAfter(RETRY_SECONDS)
        return DONE

    async def _certify(self, target: PersistentVolumeClaim, pod: Pod) -> None:
        """Make the secret that the pod waits for. Nobody of CDI may read secrets there.

        One of an earlier pod is as good until it goes with that, and then this is done once more.
        """
        name, namespace = pod.metadata.name, pod.metadata.namespace
        source = cloner.requested_source(target)
        assert source is not None
        data = await self._issuer.issue_client(cloner.client_name(*source, target))
        workers = self._lookups.settings.workers()
        secret = cloner.certificate_secret(workers, name, described(pod), namespace, data)
        await self._work.ensure(SECRETS, secret)

    async def _complete(self, target: PersistentVolumeClaim, pod: Pod | None) -> Result:
        """The target has it all; say so once the pod has said its last, or does not come to it."""
        if pod is not None and not pod.has_ended:
            left = self._patience.left(pod.metadata.uid)
            if left > 0:
                return RequeueAfter(left)
        said: Annotations = {names.CLONE_OF: claims.TRUE}
        if pod is not None:
            said |= observed.of_clone_source(target, pod).annotations
            self._patience.forget(pod.metadata.uid)
        await self._work.annotate(target, said)
        self._work.event(target, "Normal", SUCCEEDED, "Clone Complete")
        return DONE

    async def _end(self, target: PersistentVolumeClaim, pod: Pod | None) -> Result:
        """Remove the pod, then let the target go."""
        is_kept = claims.is_true(target.metadata, names.POD_RETAIN) and not target.metadata.is_being_deleted
        if pod is not None:
            self._patience.forget(pod.metadata.uid)
            if not is_kept and not pod.metadata.is_being_deleted:
                # It only reads, and is removed once the target is gone.
                with until_deadline(target, self._work.recorder, f"removing pod {pod.metadata.name}"):
                    await delete(self._client, PODS, pod)
        finalizer = finalizer_patch(target.metadata, names.CLONE_SOURCE_FINALIZER, present=False)
        await patch(self._client, PERSISTENT_VOLUME_CLAIMS, target, finalizer)
        return DONE

    def _tell(self, target: PersistentVolumeClaim, kind: EventKind, reason: str, text: str) -> None:
        """Record an event on the claim that its user asked for, where `target` was made for that one."""
        uid = target.metadata.labels.get(names.OWNED_BY_UID)
        asked = self._lookups.target(uid) if uid else None
        self._work.event(asked if asked is not None else target, kind, reason, text)


def _runs(pod: Pod) -> bool:
    status = pod.container(cloner.CONTAINER)
    return status is not None and status.state.running is not None


def _name(target: PersistentVolumeClaim) -> str:
    return f"{target.metadata.namespace}/{target.metadata.name}"


def _target_of(pod: Pod) -> Iterable[str]:
    """Index function: the claim into which a pod copies, as we named it."""
    said = pod.metadata.annotations.get(names.OWNER_REF, "")
    labels = pod.metadata.labels
    is_ours = labels.get(names.COMPONENT) == names.CLONE_SOURCE
    return (said,) if is_ours and labels.get(names.CLONE_UNIQUE_ID) == pod.metadata.name and said else ()


def _key_of_target(pod: Pod) -> list[Key]:
    found = (each.partition("/") for each in _target_of(pod))
    return [(namespace, name) for namespace, slash, name in found if slash and namespace and name]
