"""The controller of instances: makes their pods and keeps their status until the node agent takes over."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_forbidden, is_lost_race, is_not_found
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.patch.guarded import guarded_patch
from kubecore.runtime import DONE, Controller, EventKind, Expectations, Key, RequeueAfter, Result, key_of
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.conditions import has_status, is_true
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import TopologyHints
from virtplane.api.meta_v1 import OwnerReference
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster, owner_key
from virtplane.cluster.objects import AnyObject, any_object, as_written, described, leave_unfit
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi import (
    backend,
    exclusive,
    hotplug,
    networks,
    phases,
    provisioning,
    resizing,
    topology,
)
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.phases import Surroundings
from virtplane.compute.controller.vmi.storage import StorageState, needs_state_claim, storage_state
from virtplane.compute.launcherpod.metadata import APP_LABEL
from virtplane.compute.launcherpod.render import render_launcher_pod

logger = logging.getLogger(__name__)

_KIND = kinds.VIRTUAL_MACHINE_INSTANCES
_SYNCED_LABELS = (phases.NODE_LABEL, phases.OUTDATED_LABEL)
_EVICTION_ANNOTATION = "descheduler.alpha.kubernetes.io/eviction-in-progress"
_RETRY_SECONDS = 5.0
_RESIZE_SECONDS = 60.0
"""After so long a resize that was refused is tried again: a quota may have room by then."""
_CLAIM_IN_USE = "FailedPvcInUse"
"""Reason of an instance that waits for another one's disk. KubeVirt starts both."""


class VmiController:
    """Reconciles VirtualMachineInstances."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self.controller = Controller("virt-controller-vmi", self._reconcile, workers=4)
        self.controller.watch(cluster.vmis)
        self.controller.watch(cluster.pods, self._pod_keys)
        self.controller.watch(cluster.claims, self._claim_keys)
        if cluster.data_volumes is not None:
            self.controller.watch(cluster.data_volumes, self._claim_keys)
        for informer in (
            cluster.namespaces,
            cluster.quotas,
            cluster.nodes,
            cluster.kubevirts,
            cluster.migrations,
            cluster.informer(resources.STORAGE_CLASSES),
        ):
            self.controller.depend(informer)
        self._expected = Expectations(self.controller, cluster.pods, _owner_keys)

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
        kept_for = meta.labels(claim).get(backend.STATE_LABEL)
        return [*found, (meta.namespace(claim), kept_for)] if kept_for else found

    async def _reconcile(self, key: Key) -> Result:
        may_act = await self._expected.settled(key)  # observe the expectations before reading the caches
        try:
            vmi = self._cluster.vmis.get(*key)
        except UnfitDocument as unfit:
            return await self._leave_unfit(key, unfit)
        if vmi is None:
            self._expected.forget(key)
            return DONE
        if await self._cluster.mark_observed(_KIND, vmi):
            return DONE
        claims = self._cluster.claims_of(key[0])
        storage = storage_state(vmi, claims, self._cluster.data_volumes_of(key[0]))
        own = self._pods(vmi)
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

    def _pods(self, vmi: VirtualMachineInstance) -> list[JsonObject]:
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

    def _owns(self, vmi: VirtualMachineInstance, owner: OwnerReference) -> bool:
        """Whether the owner is a VM that is there, readable or not."""
        vm = any_object(self._cluster.vms, vmi.metadata.namespace, owner.name)
        return vm is not None and owner.uid == vm.metadata.uid

    async def _sync(
        self, key: Key, vmi: VirtualMachineInstance, own: list[JsonObject], storage: StorageState
    ) -> SyncError | None:
        if vmi.metadata.is_being_deleted:
            await self._delete_pods(key, vmi, [pod for pod in own if not pods.is_attachment(pod)])
            return None
        if phases.is_final(vmi):
            await self._delete_pods(key, vmi, [pod for pod in own if pods.is_attachment(pod)])
            return None
        pod = pods.current_pod(vmi, own)
        if pod is not None:
            await self._sync_pod(vmi, pod)
            creating = partial(self._expected.creating, key)
            return await hotplug.AttachmentPods(self._cluster, vmi, pod, creating).sync(own)
        if phases.phase_of(vmi) not in phases.UNPROCESSED_PHASES or phases.is_receiver(vmi):
            return None  # the migration creates the launcher of a guest that comes from another cluster
        return await self._create_launcher(key, vmi, own, storage)

    async def _create_launcher(
        self, key: Key, vmi: VirtualMachineInstance, own: list[JsonObject], storage: StorageState
    ) -> SyncError | None:
        if storage.failed_data_volume:
            return None
        if storage.missing_claim:
            return self._missing_claim(vmi, storage.missing_claim)
        hints = topology.missing_hints(vmi, self._cluster.settings(), self._cluster.nodes.list())
        if isinstance(hints, SyncError):
            return hints
        if hints is not None:
            vmi = await self._set_hints(vmi, hints)
        state_claim = ""
        if needs_state_claim(vmi):
            found = await backend.ensure_state_claim(self._cluster, vmi)
            if isinstance(found, SyncError):
                return found
            state_claim = found
        if storage.waits_for_consumer or storage.unready:
            return await self._provision(key, vmi, own, storage)
        await self._delete_pods(key, vmi, [pod for pod in own if pods.is_temporary(pod)], grace=0)
        try:
            rendered = render_launcher_pod(self._cluster.render_inputs(vmi, state_claim))
        except ValueError as error:
            self._event(vmi, "Warning", "FailedCreate", f"failed to render launch manifest: {error}")
            return SyncError("FailedCreate", f"failed to render launch manifest: {error}", retries=False)
        if not await self._still_needs_launcher(vmi):
            return None
        # Nothing is awaited from here until the pod is expected: of two instances, one sees the other's.
        return self._used_claim(vmi) or await self._create(key, vmi, rendered)

    def _used_claim(self, vmi: VirtualMachineInstance) -> SyncError | None:
        """A claim of the guest's own that is the disk of another guest."""
        namespace = vmi.metadata.namespace
        for claim in exclusive.exclusive_claims(vmi, self._cluster.claims_of(namespace)):
            for other in self._cluster.vmis.by_index("claim", f"{namespace}/{claim}"):
                is_other = other.metadata.uid != vmi.metadata.uid and claim in exclusive.written_claims(other)
                if is_other and self._has_launcher(other):
                    user = other.metadata.name
                    text = (
                        f"PVC {namespace}/{claim} is a disk of VMI {user} alone, waiting for that VMI to end"
                    )
                    if not has_status(vmi.status.conditions, "Synchronized", "False"):
                        self._event(vmi, "Warning", _CLAIM_IN_USE, text)
                    return SyncError(_CLAIM_IN_USE, text, shows_unschedulable=True)
        return None

    def _has_launcher(self, vmi: VirtualMachineInstance) -> bool:
        """Whether the instance has a launcher pod, or may have one that the cache does not show yet."""
        own = self._cluster.pods_of(vmi.metadata.uid)
        is_there = any(not pods.is_finished(pod) and not pods.is_temporary(pod) for pod in own)
        return is_there or not self._expected.satisfied(key_of(vmi))

    async def _still_needs_launcher(self, vmi: VirtualMachineInstance) -> bool:
        """Whether the instance on the API server has not ended, since the cache may be stale."""
        try:
            found = await self._client.get(_KIND, vmi.metadata.name, vmi.metadata.namespace)
        except StatusError as error:
            if is_not_found(error):
                return False
            raise
        live = decode(VirtualMachineInstance, found)
        is_same = live.metadata.uid == vmi.metadata.uid and not live.metadata.is_being_deleted
        return is_same and phases.phase_of(live) in phases.UNPROCESSED_PHASES

    def _missing_claim(self, vmi: VirtualMachineInstance, claim: str) -> SyncError:
        text = f"PVC {vmi.metadata.namespace}/{claim} does not exist, waiting for it to appear"
        if not has_status(vmi.status.conditions, "Synchronized", "False"):
            self._event(vmi, "Normal", "FailedPvcNotFound", text)
        return SyncError("FailedPvcNotFound", text, shows_unschedulable=True, retries=False)

    async def _set_hints(self, vmi: VirtualMachineInstance, hints: TopologyHints) -> VirtualMachineInstance:
        document = await as_written(self._cluster, _KIND, vmi)
        new = deep_copy(document)
        new.setdefault("status", {})["topologyHints"] = encode(hints)
        operations = guarded_patch(document, new, ("status",))
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        patched = await self._client.patch(_KIND, name, operations, namespace, type="json")
        return decode(VirtualMachineInstance, patched)

    async def _provision(
        self, key: Key, vmi: VirtualMachineInstance, own: list[JsonObject], storage: StorageState
    ) -> SyncError | None:
        """Bind claims with WaitForFirstConsumer by creating a pod that ends at once."""
        if not storage.waits_for_consumer or any(pods.is_temporary(pod) for pod in own):
            return None
        rendered = provisioning.consumer_pod(render_launcher_pod(self._cluster.render_inputs(vmi)))
        return await self._create(key, vmi, rendered)

    async def _create(self, key: Key, vmi: VirtualMachineInstance, pod: JsonObject) -> SyncError | None:
        """Create a pod; one that exists already (lost reply, stale cache) is not created twice."""
        try:
            with self._expected.creating(key):
                created = await self._client.create(resources.PODS, pod)
        except StatusError as error:
            if is_already_exists(error):
                return await self._claim(vmi, pod)
            self._event(vmi, "Warning", "FailedCreate", f"Error creating pod: {error.message}")
            if "violates PodSecurity" in error.message:
                text = (
                    f"failed to create pod for vmi {key[0]}/{key[1]}, it needs a privileged namespace to run"
                )
                return SyncError("FailedCreate", f"{text}: {error.message}")
            return SyncError("FailedCreate", f"failed to create virtual machine pod: {error.message}")
        self._event(vmi, "Normal", "SuccessfulCreate", f"Created virtual machine pod {meta.name(created)}")
        return None

    async def _claim(self, vmi: VirtualMachineInstance, pod: JsonObject) -> SyncError | None:
        """Check the owner of an existing pod with the name of the one to create."""
        name, namespace = meta.name(pod), meta.namespace(pod)
        live = await self._client.get(resources.PODS, name, namespace)
        if get_str(meta.controller_of(live), "uid") != vmi.metadata.uid:
            text = f"pod {namespace}/{name} exists and belongs to something else: delete it"
            return SyncError("FailedCreate", text)
        if APP_LABEL not in meta.labels(live):
            text = f"pod {namespace}/{name} has lost its label {APP_LABEL}, by which it is found: delete it"
            return SyncError("FailedCreate", text)
        return None

    async def _delete_pods(
        self, key: Key, vmi: VirtualMachineInstance, doomed: list[JsonObject], grace: int | None = None
    ) -> None:
        for pod in doomed:
            if meta.is_being_deleted(pod):
                continue
            try:
                with self._expected.deleting(key, meta.uid(pod)):
                    await self._client.delete(
                        resources.PODS,
                        meta.name(pod),
                        meta.namespace(pod),
                        uid=meta.uid(pod),
                        grace_period_seconds=grace,
                    )
            except StatusError as error:
                if not is_not_found(error) and error.code != 409:
                    text = f"Failed to delete virtual machine pod {meta.name(pod)}"
                    self._event(vmi, "Warning", "FailedDelete", text)
                    raise
            else:
                text = f"Deleted virtual machine pod {meta.name(pod)}"
                self._event(vmi, "Normal", "SuccessfulDelete", text)

    async def _sync_pod(self, vmi: VirtualMachineInstance, pod: JsonObject) -> None:
        """Update labels, annotations and the unpaused condition of the launcher pod from the instance."""
        if meta.is_being_deleted(pod) or pods.is_finished(pod):
            return
        new = deep_copy(pod)
        for label in _SYNCED_LABELS:
            if label == phases.OUTDATED_LABEL or label in vmi.metadata.labels:
                meta.set_label(new, label, vmi.metadata.labels.get(label))
        if vmi.status.phase == "Running":
            networks.set_attachments(new, self._cluster.render_inputs(vmi))
        evicting = "kubevirt" if vmi.status.evacuation_node_name else None
        meta.set_annotation(new, _EVICTION_ANNOTATION, evicting)
        patch = guarded_patch(pod, new, ("metadata", "labels"), ("metadata", "annotations"))
        name, namespace = meta.name(pod), meta.namespace(pod)
        if patch:
            await self._client.patch(resources.PODS, name, patch, namespace, type="json")
        await self._sync_unpaused(vmi, pod)

    async def _sync_unpaused(self, vmi: VirtualMachineInstance, pod: JsonObject) -> None:
        status, reason, text = ("False", "Paused", "the virtual machine is paused")
        if not is_true(vmi.status.conditions, "Paused"):
            status, reason, text = ("True", "NotPaused", "the virtual machine is not paused")
        present = meta.get_condition(pod, labels.CONDITION_UNPAUSED)
        if present is not None and present.get("status") == status:
            return
        wanted = conditions.new_condition(labels.CONDITION_UNPAUSED, status, reason, text, probed=True)
        await self._client.patch(
            resources.PODS,
            meta.name(pod),
            {"status": {"conditions": [wanted]}},
            meta.namespace(pod),
            type="strategic",
            subresource="status",
        )

    async def _update_status(self, vmi: VirtualMachineInstance, around: Surroundings) -> None:
        draft = encode(vmi)
        if phases.next_state(vmi, draft, around) == draft:
            return
        try:
            document = await as_written(self._cluster, _KIND, vmi)
        except StatusError as error:
            if is_not_found(error):
                return
            raise
        new = phases.next_state(vmi, document, around)
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        try:
            if (
                vmi.status.phase in ("Scheduled", "Running")
                and new["status"]["phase"] not in phases.FINAL_PHASES
            ):
                patch = guarded_patch(document, new, ("metadata", "labels"), ("status",))
                await self._client.patch(_KIND, name, patch, namespace, type="json")
            else:
                await self._client.update(_KIND, new)
        except StatusError as error:
            if not is_not_found(error):
                raise

    def _event(self, vmi: VirtualMachineInstance, kind: EventKind, reason: str, message: str) -> None:
        self._cluster.recorder.event(described(vmi), kind, reason, message)


def _owner_keys(pod: JsonObject) -> Iterable[Key]:
    """The instance of a launcher pod or an attachment pod, which its launcher controls."""
    if pods.is_attachment(pod):
        name = meta.annotations(pod).get(labels.OWNER_VMI_NAME, "")
        return [(meta.namespace(pod), name)] if name else []
    return owner_key("VirtualMachineInstance")(pod)
