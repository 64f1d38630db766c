"""Starting and ending worker pods, the same way for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating, is_not_found
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PODS, ResourceType
from kubecore.runtime import DONE, EventKind, EventRecorder, Informer, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import described
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.pods.scratch import scratch_claim
from virtplane.storage.cdi.controller.pods.worker import pod_owner
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers.observed import (
    CREATING_SCRATCH,
    CREATING_SCRATCH_MESSAGE,
    Annotations,
    is_evicted,
    uses_scratch,
)
from virtplane.storage.cdi.controller.workers.pods import Pod
from virtplane.storage.csi.parts import delete, members_patch, patch, versioned

_log = logging.getLogger(__name__)

ERR_STARTING_POD = "ErrStartingPod"
ERR_EXCEEDED_QUOTA = "ErrExceededQuota"
EXCEEDED_QUOTA = "exceeded quota:"
"""What an API server says that refuses an object because of a quota."""
IN_USE_SECONDS = 2.0
RETRY_SECONDS = 10.0
_REFUSALS = frozenset({400, 403, 404, 422})

Wanted = Callable[[PersistentVolumeClaim], bool]
"""Whether a claim still needs its worker pod."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the controllers of worker pods share; `namespace` is that of the installation."""

    client: Client
    recorder: EventRecorder
    settings: Settings
    pods: Informer[Pod]
    claims: Informer[PersistentVolumeClaim]
    namespace: str

    def event(self, claim: PersistentVolumeClaim, kind: EventKind, reason: str, text: str) -> None:
        """Record an event on a claim."""
        self.recorder.event(described(claim), kind, reason, text)

    async def annotate(
        self,
        claim: PersistentVolumeClaim,
        changes: Annotations,
        new_labels: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Set annotations of that very version of a claim; whether any changed. Raises StatusError.

        Labels that the claim has already stay as they are.
        """
        operations = claim_patch(claim, changes, new_labels)
        await patch(self.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        return bool(operations)

    def own_pods(self, claim: PersistentVolumeClaim, component: str) -> list[Pod]:
        """The pods of a kind that were made to fill `claim`."""
        return [
            pod
            for pod in self.users(claim)
            if pod.metadata.labels.get(names.COMPONENT) == component and is_own(pod, claim)
        ]

    def spent(self, claim: PersistentVolumeClaim, pods: Iterable[Pod], *, is_filled: bool) -> list[Pod]:
        """Those of a claim's pods that must go now that it is filled, or has failed for good."""
        is_kept = claims.is_true(claim.metadata, names.POD_RETAIN) or (is_filled and holds_name(claim))
        return [pod for pod in pods if pod.is_gated or not is_kept]

    def users(self, claim: PersistentVolumeClaim) -> list[Pod]:
        """All pods that use `claim`."""
        return self.pods.by_index("claim", f"{claim.metadata.namespace}/{claim.metadata.name}")

    def other_user(self, claim: PersistentVolumeClaim) -> Pod | None:
        """A pod that uses the claim now and was not made to fill it."""
        users = [pod for pod in self.users(claim) if not pod.has_ended and not is_own(pod, claim)]
        return min(users, key=lambda pod: pod.metadata.name, default=None)

    async def delete_pods(self, pods: Iterable[Pod]) -> None:
        """Delete these pods. Raises StatusError."""
        for pod in pods:
            if not pod.metadata.is_being_deleted:
                await delete(self.client, PODS, pod)

    async def create_pod(
        self, claim: PersistentVolumeClaim, document: JsonObject, is_wanted: Wanted
    ) -> Result:
        """Create a worker pod; what refuses it is told in the claim. Raises StatusError, UnfitDocument.

        The request may take effect after it was given up, even after another pod has filled the claim: so the
        pod has a gate, unless its name is held from then on. An answer shows that it is there, and `admit` is
        asked at once.
        """
        if not holds_name(claim) and "nodeName" not in document["spec"]:
            document["spec"]["schedulingGates"] = [{"name": names.WORKER_GATE}]
        try:
            made = await self.client.create(PODS, document, claim.metadata.namespace)
        except StatusError as error:
            if is_already_exists(error):
                return RequeueAfter(IN_USE_SECONDS)  # an earlier one goes, or the cache does not show it
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            return await self.cannot_start(claim, document["metadata"]["name"], error.message)
        pod = decode(Pod, made)
        if pod.is_gated:
            await self.admit(claim, pod, is_wanted)
        return DONE

    async def admit(self, claim: PersistentVolumeClaim, pod: Pod, is_wanted: Wanted) -> bool:
        """Let a gated pod start if its claim, which is read again, still needs it; else delete it.

        As long as the pod is there no other one has its name, so nobody fills the claim in between. Raises
        StatusError, UnfitDocument.
        """
        if pod.metadata.is_being_deleted:
            return False
        current = await live(self.client, claim)
        if current is None or not is_wanted(current):
            await self.delete_pods([pod])
            return False
        gates = pod.spec.scheduling_gates
        kept = [{"name": each.name} for each in gates if each.name != names.WORKER_GATE]
        change = {"op": "replace", "path": "/spec/schedulingGates", "value": kept}
        await patch(self.client, PODS, pod, versioned(pod, [change]))
        return True

    async def cannot_start(self, claim: PersistentVolumeClaim, pod: str, problem: str) -> Result:
        """Tell in `claim` that its pod cannot be made, and try again later. Raises StatusError."""
        reason = ERR_EXCEEDED_QUOTA if EXCEEDED_QUOTA in problem else ERR_STARTING_POD
        text = (
            f"Error starting pod '{pod}': For more information, request access to cdi-deploy logs from your"
            " sysadmin"
        )
        self.event(claim, "Warning", reason, text)
        # Users are told to ask for the log: quotas and policies may name what is none of theirs.
        _log.warning("pod %s/%s cannot be created for its claim: %s", claim.metadata.namespace, pod, problem)
        running: Annotations = {
            names.RUNNING: claims.FALSE,
            names.RUNNING_MESSAGE: text,
            names.RUNNING_REASON: reason,
        }
        await self.annotate(claim, running)
        return RequeueAfter(RETRY_SECONDS)

    async def ensure(self, kind: ResourceType, document: JsonObject) -> None:
        """Create an object that is named for its purpose, unless it is there. Raises StatusError."""
        try:
            await self.client.create(kind, document, document["metadata"]["namespace"])
        except StatusError as error:
            if not is_already_exists(error):
                raise

    def obstacle(self, claim: PersistentVolumeClaim, in_use: str) -> Result | None:
        """What keeps a worker pod from being made now; `in_use` is the reason of the event about a user."""
        user = self.other_user(claim)
        if user is not None:
            text = (
                f"pod {user.metadata.namespace}/{user.metadata.name} using PersistentVolumeClaim"
                f" {claim.metadata.name}"
            )
            self.event(claim, "Warning", in_use, text)
            return RequeueAfter(IN_USE_SECONDS)
        return DONE if self._is_scratch_going(claim) else None  # its event brings the claim back

    async def can_go_on(self, claim: PersistentVolumeClaim, pod: Pod, is_wanted: Wanted) -> bool:
        """Whether what the pod of `claim` tells counts; a pod that can do nothing more is deleted.

        Raises StatusError, UnfitDocument.
        """
        if pod.is_gated and not await self.admit(claim, pod, is_wanted):
            return False
        is_blocked = pod.is_pending and uses_scratch(claim, pod) and self._is_scratch_going(claim)
        if is_blocked or is_evicted(pod):
            await self.delete_pods([pod])
            return False
        return True

    def _is_scratch_going(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the scratch claim of an earlier pod is being deleted.

        It does not go while a pod with a node uses it, and no such pod starts: a new pod must not do so.
        """
        scratch = self.claims.get(claim.metadata.namespace, cdi_names.scratch_claim(claim.metadata.name))
        return scratch is not None and scratch.metadata.is_being_deleted

    async def give_scratch(self, claim: PersistentVolumeClaim, pod: Pod) -> Annotations:
        """Make the scratch claim of `pod`; the annotations of `claim` that tell of it. Raises StatusError."""
        name = cdi_names.scratch_claim(claim.metadata.name)
        scratch = self.claims.get(claim.metadata.namespace, name)
        if scratch is None or not scratch.metadata.is_controlled_by(pod.metadata):
            if not pod.metadata.is_being_deleted:
                class_name, size = self.settings.scratch(claim)
                document = scratch_claim(claim, described(pod), class_name, size, self.settings.labels)
                await self.ensure(PERSISTENT_VOLUME_CLAIMS, document)
        elif claims.is_bound(scratch):
            return bound_again(claim, CREATING_SCRATCH)
        return {
            names.BOUND: claims.FALSE,
            names.BOUND_MESSAGE: CREATING_SCRATCH_MESSAGE,
            names.BOUND_REASON: CREATING_SCRATCH,
        }

    async def give_proxy_authority(self, claim: PersistentVolumeClaim, pod: Pod) -> None:
        """Copy the authorities of the proxy into the pod's namespace. Raises StatusError."""
        source = self.settings.proxy.trusted_ca_proxy
        if not source or pod.metadata.is_being_deleted:
            return
        found = await self.client.get(CONFIG_MAPS, source, self.namespace)
        metadata = {
            "name": cdi_names.proxy_config_map(claim.metadata.name),
            "namespace": claim.metadata.namespace,
            "ownerReferences": [pod_owner(pod.metadata)],
        }
        copy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": found.get("data", {})}
        await self.ensure(CONFIG_MAPS, copy)


def claim_patch(
    claim: PersistentVolumeClaim, changes: Annotations, new_labels: Mapping[str, str] = MappingProxyType({})
) -> list[JsonObject]:
    """The operations that set annotations and add labels; none where that is done."""
    before = {
        "annotations": dict(claim.metadata.annotations),
        "labels": dict(claim.metadata.labels),
    }
    wanted = {**before["annotations"], **changes}
    after = {
        "annotations": {name: value for name, value in wanted.items() if value is not None},
        "labels": {**new_labels, **before["labels"]},
    }
    return versioned(claim, members_patch("/metadata", before, after))


def holds_name(claim: PersistentVolumeClaim) -> bool:
    """Whether the pod that fills a claim stays until the claim has lost its volume to whom it is for.

    While it is there, no late request for it can take effect; afterwards it would find no volume. Checkpoints
    have pods of the same name one after another.
    """
    has_volume = claims.is_pending(claim) or claims.is_bound(claim)
    return claims.has(claim, names.POPULATOR_KIND) and has_volume and not claims.is_multi_stage(claim)


async def live(client: Client, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
    """The claim as it is now; None if it is gone or going. Raises StatusError, UnfitDocument."""
    try:
        found = await client.get(PERSISTENT_VOLUME_CLAIMS, claim.metadata.name, claim.metadata.namespace)
    except StatusError as error:
        if is_not_found(error):
            return None
        raise
    current = decode(PersistentVolumeClaim, found)
    same = current.metadata.uid == claim.metadata.uid
    return current if same and not current.metadata.is_being_deleted else None


def is_own(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether the pod was made to fill `claim`: those of image streams have no owner, but a mark."""
    if pod.metadata.controller is None:
        return names.RESOLVE_NAMES in pod.metadata.annotations and _is_marked(pod)
    return pod.metadata.is_controlled_by(claim.metadata)


def bound_again(claim: PersistentVolumeClaim, reason: str) -> Annotations:
    """What takes back that the claim counts as not bound because of `reason`."""
    if claims.value(claim, names.BOUND_REASON) != reason:
        return {}
    return dict.fromkeys((names.BOUND, names.BOUND_MESSAGE, names.BOUND_REASON))


def _is_marked(pod: Pod) -> bool:
    return names.CREATED_BY_CONTROLLER in pod.metadata.annotations
