"""The controller of instances: makes their pods and keeps their status until the node agent takes over."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from kubecore import resources
from kubecore.errors import StatusError, is_forbidden, is_lost_race, is_not_found
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.patch.diff import create_json_patch
from kubecore.patch.guarded import guarded_patch, same_version
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result, key_of
from kubecore.runtime.metrics import RecentCounts
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import OwnerReference
from virtplane.cluster import persistentstate
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.cluster.objects import AnyObject, any_object, described, leave_unfit, patch
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi import (
    hotplug,
    launchersync,
    phases,
    resizing,
    sockets,
)
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.instancepods import InstancePods
from virtplane.compute.controller.vmi.launchers import Launchers
from virtplane.compute.controller.vmi.phases import Surroundings
from virtplane.compute.controller.vmi.storage import StorageState, storage_state
from virtplane.compute.syncs import SYNCS

logger = logging.getLogger(__name__)

_KIND = kinds.VIRTUAL_MACHINE_INSTANCES
_RETRY_SECONDS = 5.0
_RESIZE_SECONDS = 60.0
"""After so long a resize that was refused is tried again: a quota may have room by then."""

_MOST_COUNTED = 10_000
"""Instances of which it is counted how often they were written."""


class VmiController:
    """Reconciles VirtualMachineInstances."""

    def __init__(self, cluster: Cluster) -> None:
        self.counts = RecentCounts(*SYNCS, _MOST_COUNTED)
        self._cluster = cluster
        self._client = cluster.client
        self.controller = Controller("virt-controller-vmi", self._reconcile, workers=4)
        self.controller.watch(cluster.vmis)
        self.controller.watch(cluster.pods, self._pod_keys)
        self.controller.watch(cluster.claims, self._claim_keys)
        if cluster.data_volumes is not None:
            self.controller.watch(cluster.data_volumes, self._claim_keys)
        self.controller.watch(cluster.kubevirts, self._relabelled_keys)
        for informer in (
            cluster.namespaces,
            cluster.quotas,
            cluster.nodes,
            cluster.migrations,
            cluster.informer(resources.STORAGE_CLASSES),
        ):
            self.controller.depend(informer)
        self._expected = Expectations(self.controller, cluster.pods, _owner_keys)
        self._pods = InstancePods(cluster, self._expected)
        self._launchers = Launchers(cluster, self._expected, self._pods)

    def _relabelled_keys(self, _: JsonObject) -> list[Key]:
        """The instances whose label does not say whether new launchers have another image than theirs."""
        image = self._cluster.images.launcher
        return [
            key_of(vmi)
            for vmi in self._cluster.vmis.list()
            if pods.is_outdated(vmi, image) != (phases.OUTDATED_LABEL in vmi.metadata.labels)
        ]

    def _pod_keys(self, pod: JsonObject) -> list[Key]:
        is_over = pods.is_finished(pod) and not pods.is_attachment(pod)
        return [*_owner_keys(pod), *(self._users_of_claims(pod) if is_over else [])]

    def _users_of_claims(self, pod: JsonObject) -> list[Key]:
        """The instances with claims of a pod, which may wait for its end."""
        volumes = get_list(pod, "spec", "volumes")
        claims = [get_str(each, "persistentVolumeClaim", "claimName") for each in volumes]
        names = [f"{meta.namespace(pod)}/{claim}" for claim in claims if claim]
        return [key_of(vmi) for name in names for vmi in self._cluster.vmis.by_index("claim", name)]

    def _claim_keys(self, claim: JsonObject) -> list[Key]:
        users = self._cluster.vmis.by_index("claim", f"{meta.namespace(claim)}/{meta.name(claim)}")
        found = [key_of(vmi) for vmi in users] + list(owner_key("VirtualMachineInstance")(claim))
        # An instance's state claim belongs to its VirtualMachine, and none of its volumes names it.
        kept_for = meta.labels(claim).get(persistentstate.STATE_LABEL)
        return [*found, (meta.namespace(claim), kept_for)] if kept_for else found

    async def _reconcile(self, key: Key) -> Result:
        may_act = await self._expected.settled(key)  # observe the expectations before reading the caches
        try:
            vmi = self._cluster.vmis.get(*key)
        except UnfitDocument as unfit:
            return await self._leave_unfit(key, unfit)
        if vmi is None:
            self._expected.forget(key)
            self.counts.forget(*key)
            return DONE
        if await self._cluster.mark_observed(_KIND, vmi):
            return DONE
        claims = self._cluster.claims_of(key[0])
        storage = storage_state(vmi, claims, self._cluster.data_volumes_of(key[0]))
        own = self._pods_of(vmi)
        error: SyncError | None = None
        room: resizing.Room = {}
        if may_act:
            try:
                error = await self._sync(key, vmi, own, storage)
                pod = pods.current_pod(vmi, own)
                room = await resizing.sync(self._cluster, vmi, pod) if pod is not None else {}
            except StatusError as failure:
                if is_lost_race(failure):
                    raise
                error = SyncError("FailedCreate", failure.message)
                if not is_forbidden(failure):
                    logger.warning("syncing instance %s/%s failed, trying again: %s", *key, failure.message)
        around = replace(self._surroundings(vmi, own, storage, error), room=room)
        if vmi.status.phase == "Scheduling" and sockets.needs_cid(vmi):
            around = self._with_cid(around)
            error = around.error
        await self._update_status(vmi, around)
        if error is not None and error.retries:
            return RequeueAfter(_RETRY_SECONDS)
        if any(reason == "PodResizeFailed" for reason, _ in room.values()):
            return RequeueAfter(_RESIZE_SECONDS)
        return DONE

    async def _leave_unfit(self, key: Key, error: UnfitDocument) -> Result:
        """Handle an instance that cannot be decoded: ignore it, or remove its finalizer after its pods are
        gone.
        """
        await leave_unfit(self._cluster, _KIND, key, error)
        try:
            live = decode(AnyObject, await self._client.get(_KIND, key[1], key[0])).metadata
        except StatusError as failure:
            if is_not_found(failure):
                return DONE
            raise
        if not live.is_being_deleted:
            return DONE
        own = self._cluster.pods_of(live.uid)
        for pod in own:
            if not meta.is_being_deleted(pod):
                await self._client.delete(resources.PODS, meta.name(pod), key[0], uid=meta.uid(pod))
        kept = [item for item in live.finalizers if item not in phases.FINALIZERS]
        if not own and len(kept) < len(live.finalizers):
            before: JsonObject = {"metadata": encode(live)}
            after = {"metadata": {**before["metadata"], "finalizers": kept or None}}
            operations = guarded_patch(before, after, ("metadata",))
            await self._client.patch(_KIND, key[1], operations, key[0], type="json")
        return DONE

    def _pods_of(self, vmi: VirtualMachineInstance) -> list[JsonObject]:
        own = self._cluster.pods_of(vmi.metadata.uid)
        attachments = [
            item for pod in own for item in self._cluster.pods.by_index("controller", meta.uid(pod))
        ]
        return [*own, *attachments]

    def _surroundings(
        self,
        vmi: VirtualMachineInstance,
        own: list[JsonObject],
        storage: StorageState,
        error: SyncError | None,
    ) -> Surroundings:
        owner = vmi.metadata.controller
        return Surroundings(
            pod=pods.current_pod(vmi, own),
            pods=tuple(own),
            storage=storage,
            claims=self._cluster.claims_of(vmi.metadata.namespace),
            cdi_config=self._cluster.cdi_config,
            launcher_image=self._cluster.images.launcher,
            error=error,
            has_owner_vm=owner is not None and self._owns(vmi, owner),
        )

    def _with_cid(self, around: Surroundings) -> Surroundings:
        """`around` with a VSOCK address, or with the error that there is none."""
        try:
            return replace(around, vsock_cid=sockets.free_cid(self._cluster.vmis.list()))
        except sockets.CidsExhausted as exhausted:
            return replace(around, error=around.error or SyncError("FailedCreate", str(exhausted)))

    def _owns(self, vmi: VirtualMachineInstance, owner: OwnerReference) -> bool:
        """Whether the owner is a VM that is there, readable or not."""
        vm = any_object(self._cluster.vms, vmi.metadata.namespace, owner.name)
        return vm is not None and owner.uid == vm.metadata.uid

    async def _sync(
        self, key: Key, vmi: VirtualMachineInstance, own: list[JsonObject], storage: StorageState
    ) -> SyncError | None:
        if vmi.metadata.is_being_deleted:
            await self._pods.delete(key, vmi, [pod for pod in own if not pods.is_attachment(pod)])
            return None
        if phases.is_final(vmi):
            await self._pods.delete(key, vmi, [pod for pod in own if pods.is_attachment(pod)])
            return None
        pod = pods.current_pod(vmi, own)
        if pod is not None:
            unshared = launchersync.unshared_paths(self._cluster, vmi, pod)
            if unshared is not None:
                return unshared
            await launchersync.sync(self._cluster, vmi, pod)
            creating = partial(self._expected.creating, key)
            return await hotplug.AttachmentPods(self._cluster, vmi, pod, creating).sync(own)
        if phases.phase_of(vmi) not in phases.UNPROCESSED_PHASES or phases.is_receiver(vmi):
            return None  # the migration creates the launcher of a guest that comes from another cluster
        return await self._launchers.create(key, vmi, own, storage)

    async def _update_status(self, vmi: VirtualMachineInstance, around: Surroundings) -> None:
        """Write what changes, element by element: fields that structs do not know stay as they are."""
        draft = encode(vmi)
        changes = create_json_patch(draft, phases.next_state(vmi, draft, around))
        if changes:
            await patch(self._cluster, _KIND, vmi, [*same_version(described(vmi)), *changes])
            self.counts.add(*key_of(vmi))


def _owner_keys(pod: JsonObject) -> Iterable[Key]:
    """The instance of a launcher pod or an attachment pod, which its launcher controls."""
    if pods.is_attachment(pod):
        name = meta.annotations(pod).get(labels.OWNER_VMI_NAME, "")
        return [(meta.namespace(pod), name)] if name else []
    return owner_key("VirtualMachineInstance")(pod)
