"""Creates the launcher pod of an instance once its volumes and disks, and the nodes' clocks, allow it."""

from __future__ import annotations

from dataclasses import replace

from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode, encode
from kubecore.patch.guarded import guarded_patch
from kubecore.runtime import Expectations, Key, key_of
from virtplane.api import resources as kinds
from virtplane.api.conditions import has_status
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import TopologyHints
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import as_written, described
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi import backend, definitions, exclusive, phases, provisioning, topology
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.instancepods import InstancePods
from virtplane.compute.controller.vmi.storage import StorageState, needs_state_claim
from virtplane.compute.launcherpod import containerpaths
from virtplane.compute.launcherpod.render import render_launcher_pod

_KIND = kinds.VIRTUAL_MACHINE_INSTANCES
_CLAIM_IN_USE = "FailedPvcInUse"
"""Reason of an instance that waits for another one's disk. KubeVirt starts both."""


class Launchers:
    """Creates launcher pods; `expected` are those that the cache does not show yet."""

    def __init__(self, cluster: Cluster, expected: Expectations, instance_pods: InstancePods) -> None:
        self._cluster = cluster
        self._expected = expected
        self._pods = instance_pods

    async def create(
        self, key: Key, vmi: VirtualMachineInstance, own: list[JsonObject], storage: StorageState
    ) -> SyncError | None:
        """Take the next step towards a launcher; returns what the instance waits for. Raises StatusError."""
        if storage.failed_data_volume:
            return None
        if containerpaths.shared_paths(vmi) and not self._cluster.settings().gate("ContainerPathVolumes"):
            return self._disabled_paths(vmi)
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
        await self._pods.delete(key, vmi, [pod for pod in own if pods.is_temporary(pod)], grace=0)
        devices = await definitions.network_resources(self._cluster, vmi)
        if isinstance(devices, SyncError):
            return devices
        try:
            inputs = replace(self._cluster.render_inputs(vmi, state_claim), network_resources=devices)
            rendered = render_launcher_pod(inputs)
        except ValueError as error:
            self._cluster.recorder.event(
                described(vmi), "Warning", "FailedCreate", f"failed to render launch manifest: {error}"
            )
            return SyncError("FailedCreate", f"failed to render launch manifest: {error}", retries=False)
        if not await self._still_needs_launcher(vmi):
            return None
        # Nothing is awaited from here until the pod is expected: of two instances, one sees the other's.
        return self._used_claim(vmi) or await self._pods.create(key, vmi, rendered)

    def _disabled_paths(self, vmi: VirtualMachineInstance) -> SyncError:
        text = "VMI has ContainerPath volumes but the ContainerPathVolumes feature gate is disabled"
        reason = "ContainerPathVolumesDisabled"
        self._cluster.recorder.event(described(vmi), "Warning", reason, f"Cannot create pod: {text}")
        return SyncError(reason, text)

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
                        self._cluster.recorder.event(described(vmi), "Warning", _CLAIM_IN_USE, text)
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
            found = await self._cluster.client.get(_KIND, vmi.metadata.name, vmi.metadata.namespace)
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
            self._cluster.recorder.event(described(vmi), "Normal", "FailedPvcNotFound", text)
        return SyncError("FailedPvcNotFound", text, shows_unschedulable=True, retries=False)

    async def _set_hints(self, vmi: VirtualMachineInstance, hints: TopologyHints) -> VirtualMachineInstance:
        document = await as_written(self._cluster, _KIND, vmi)
        new = deep_copy(document)
        new.setdefault("status", {})["topologyHints"] = encode(hints)
        operations = guarded_patch(document, new, ("status",))
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        patched = await self._cluster.client.patch(_KIND, name, operations, namespace, type="json")
        return decode(VirtualMachineInstance, patched)

    async def _provision(
        self, key: Key, vmi: VirtualMachineInstance, own: list[JsonObject], storage: StorageState
    ) -> SyncError | None:
        """Bind claims with WaitForFirstConsumer by creating a pod that ends at once."""
        if not storage.waits_for_consumer or any(pods.is_temporary(pod) for pod in own):
            return None
        rendered = provisioning.consumer_pod(render_launcher_pod(self._cluster.render_inputs(vmi)))
        return await self._pods.create(key, vmi, rendered)
