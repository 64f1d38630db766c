"""Starting and ending worker pods, the same way for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_namespace_terminating
from kubecore.json import JsonObject
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
)
from virtplane.storage.cdi.controller.workers.pods import Pod
from virtplane.storage.csi.parts import delete, members_patch, patch, versioned

ERR_STARTING_POD = "ErrStartingPod"
ERR_EXCEEDED_QUOTA = "ErrExceededQuota"
EXCEEDED_QUOTA = "exceeded quota:"
"""What an API server says that refuses an object because of a quota."""
IN_USE_SECONDS = 2.0
RETRY_SECONDS = 10.0
_REFUSALS = frozenset({400, 403, 404, 422})


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

    async def create_pod(self, claim: PersistentVolumeClaim, pod: JsonObject) -> Result:
        """Create a worker pod; what refuses it is told in the claim. Raises StatusError."""
        try:
            await self.client.create(PODS, pod, claim.metadata.namespace)
        except StatusError as error:
            if is_already_exists(error):
                return RequeueAfter(IN_USE_SECONDS)  # an earlier one goes, or the cache does not show it
            if error.code not in _REFUSALS or is_namespace_terminating(error):
                raise
            return await self.cannot_start(claim, pod["metadata"]["name"], error.message)
        return DONE

    async def cannot_start(self, claim: PersistentVolumeClaim, pod: str, problem: str) -> Result:
        """Tell in `claim` that its pod cannot be made, and try again later. Raises StatusError."""
        reason = ERR_EXCEEDED_QUOTA if EXCEEDED_QUOTA in problem else ERR_STARTING_POD
        text = (
            f"Error starting pod '{pod}': For more information, request access to cdi-deploy logs from your"
            " sysadmin"
        )
        self.event(claim, "Warning", reason, text)
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
