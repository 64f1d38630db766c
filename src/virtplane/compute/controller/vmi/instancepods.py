"""Creates and deletes pods of an instance, safely when replies are lost, and tells its owner."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.runtime import Expectations, Key
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.launcherpod.metadata import APP_LABEL


class InstancePods:
    """What is created and deleted is `expected` until the cache shows it."""

    def __init__(self, cluster: Cluster, expected: Expectations) -> None:
        self._client = cluster.client
        self._recorder = cluster.recorder
        self._expected = expected

    async def create(self, key: Key, vmi: VirtualMachineInstance, pod: JsonObject) -> SyncError | None:
        """Create a pod; one that exists already (lost reply, stale cache) is not created twice."""
        try:
            with self._expected.creating(key):
                created = await self._client.create(resources.PODS, pod)
        except StatusError as error:
            if is_already_exists(error):
                return await self._claim(vmi, pod)
            self._recorder.event(
                described(vmi), "Warning", "FailedCreate", f"Error creating pod: {error.message}"
            )
            if "violates PodSecurity" in error.message:
                text = (
                    f"failed to create pod for vmi {key[0]}/{key[1]}, it needs a privileged namespace to run"
                )
                return SyncError("FailedCreate", f"{text}: {error.message}")
            return SyncError("FailedCreate", f"failed to create virtual machine pod: {error.message}")
        self._recorder.event(
            described(vmi), "Normal", "SuccessfulCreate", f"Created virtual machine pod {meta.name(created)}"
        )
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

    async def delete(
        self, key: Key, vmi: VirtualMachineInstance, doomed: list[JsonObject], grace: int | None = None
    ) -> None:
        """Delete pods that are not being deleted yet, within `grace` seconds or their own grace period.

        Raises StatusError.
        """
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
                    self._recorder.event(described(vmi), "Warning", "FailedDelete", text)
                    raise
            else:
                text = f"Deleted virtual machine pod {meta.name(pod)}"
                self._recorder.event(described(vmi), "Normal", "SuccessfulDelete", text)
