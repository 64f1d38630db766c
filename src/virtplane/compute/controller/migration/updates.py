"""Workload updates: migrations for changes of running guests, and for new launcher images."""

from __future__ import annotations

from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_int, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute import plugging
from virtplane.compute.controller import pods
from virtplane.compute.controller.migration import backoff, phases

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
_VETO = "kubevirt.io/testWorkloadUpdateMigrationAbortion"
_INSTANCE = kinds.VIRTUAL_MACHINE_INSTANCES.kind
_RETRY_SECONDS = 5.0
_UNREADABLE_SECONDS = 60.0
_PENDING_CHANGES = ("MigrationRequired", "VolumesChange")
_PLUGGED_CHANGES = (plugging.CPU_CHANGE, plugging.MEMORY_CHANGE)
"""Changes that a migration brings only where the pod cannot be resized on its node."""


def needs_migration(vmi: VirtualMachineInstance) -> bool:
    """Whether a change takes effect only after a migration."""
    if _VETO in vmi.metadata.annotations:
        return False
    return any(is_true(vmi.status.conditions, type) for type in _PENDING_CHANGES) or any(
        (item.type in _PLUGGED_CHANGES, item.status) == (True, "True") and item.reason in plugging.NOT_RESIZED
        for item in vmi.status.conditions
    )


def is_rolled_out(kubevirt: JsonObject | None) -> bool:
    """Whether the operator has installed what the KubeVirt object says now."""
    status = get_object(kubevirt, "status")
    is_current = get_str(status, "observedDeploymentID") == get_str(status, "targetDeploymentID")
    is_seen = get_int(status, "observedGeneration") >= get_int(kubevirt, "metadata", "generation")
    return get_str(status, "phase") == "Deployed" and is_current and is_seen


def is_candidate(vmi: VirtualMachineInstance, launcher_image: str) -> bool:
    """Whether a running instance needs an update and can be migrated."""
    if vmi.status.phase != "Running" or vmi.metadata.is_being_deleted:
        return False
    if not needs_migration(vmi) and not pods.is_outdated(vmi, launcher_image):
        return False
    return is_true(vmi.status.conditions, "LiveMigratable") and len(vmi.status.active_pods) <= 1


def update_migration(vmi: VirtualMachineInstance) -> JsonObject:
    """The migration that updates a guest."""
    is_change = needs_migration(vmi)
    metadata: JsonObject = {
        "generateName": "kubevirt-workload-update-",
        "namespace": vmi.metadata.namespace,
        "annotations": {labels.WORKLOAD_UPDATE_MIGRATION: ""},
    }
    if is_true(vmi.status.conditions, "VolumesChange"):
        name = vmi.metadata.name
        metadata["labels"] = {labels.VOLUME_MIGRATION: name if len(name) <= 63 else vmi.metadata.uid}
    return {
        "apiVersion": _KIND.api_version,
        "kind": _KIND.kind,
        "metadata": metadata,
        "spec": {
            "vmiName": vmi.metadata.name,
            "priority": "user-triggered" if is_change else "system-critical",
        },
    }


class UpdateController:
    """Watches instances and creates migrations, if the installation allows workload updates by migration."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.controller = Controller("virt-controller-workload-update", self._reconcile)
        self.controller.watch(cluster.vmis)
        self.controller.watch(cluster.migrations, _instance_keys)
        self.controller.depend(cluster.kubevirts)
        self._expected = Expectations(self.controller, cluster.migrations, _updated_instance)

    async def _reconcile(self, key: Key) -> Result:
        if not await self._expected.settled(key):
            return DONE
        try:
            vmi = self._cluster.vmis.get(*key)
            found = self._cluster.migrations_of(vmi) if vmi is not None else []
        except UnfitDocument as error:
            # The controller of that object reports it as undecodable.
            return DONE if error.kind == _INSTANCE else RequeueAfter(_UNREADABLE_SECONDS)
        if vmi is None or not is_candidate(vmi, self._cluster.images.launcher):
            return DONE
        strategy = self._cluster.settings().workload_update_strategy
        if "LiveMigrate" not in strategy.workload_update_methods:
            return DONE
        if any(not phases.is_finished(item) for item in found):
            return DONE
        wait = backoff.remaining_seconds(found, times.now())
        if wait > 0:
            return RequeueAfter(wait)
        if not is_rolled_out(self._cluster.kubevirt()):
            return RequeueAfter(_RETRY_SECONDS)
        try:
            with self._expected.creating(key):
                created = await self._cluster.client.create(_KIND, update_migration(vmi))
        except StatusError as error:
            text = f"Error creating a Migration for automated workload update: {error.message}"
            self._cluster.recorder.event(described(vmi), "Warning", "FailedCreate", text)
            return RequeueAfter(_RETRY_SECONDS)
        text = f"Created Migration {meta.name(created)} for automated workload update"
        self._cluster.recorder.event(described(vmi), "Normal", "SuccessfulCreate", text)
        return RequeueAfter(_RETRY_SECONDS)


def _updated_instance(migration: VirtualMachineInstanceMigration) -> list[Key]:
    is_update = labels.WORKLOAD_UPDATE_MIGRATION in migration.metadata.annotations
    return _instance_keys(migration) if is_update else []


def _instance_keys(migration: VirtualMachineInstanceMigration) -> list[Key]:
    return [(migration.metadata.namespace, migration.spec.vmi_name or "")]
