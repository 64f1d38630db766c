"""Migrations that changes of running guests, or of the launcher, ask for."""

from __future__ import annotations

from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta, times
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.migration import backoff, phases

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
_VETO = "kubevirt.io/testWorkloadUpdateMigrationAbortion"
_RETRY_SECONDS = 5.0
_PENDING_CHANGES = ("HotVCPUChange", "HotMemoryChange", "MigrationRequired", "VolumesChange")


def needs_migration(vmi: JsonObject) -> bool:
    """Whether a change reaches the guest only by moving it."""
    if _VETO in meta.annotations(vmi):
        return False
    known = meta.conditions(vmi)
    return any(conditions.has_status(known, type, "True") for type in _PENDING_CHANGES)


def is_outdated(vmi: JsonObject, launcher_image: str) -> bool:
    """Whether the guest runs in a launcher of another release."""
    image = get_str(vmi, "status", "launcherContainerImageVersion")
    return bool(image) and bool(launcher_image) and image != launcher_image


def update_migration(vmi: JsonObject) -> JsonObject:
    """The migration that brings a guest up to date."""
    is_change = needs_migration(vmi)
    metadata: JsonObject = {
        "generateName": "kubevirt-workload-update-",
        "namespace": meta.namespace(vmi),
        "annotations": {labels.WORKLOAD_UPDATE_MIGRATION: ""},
    }
    if conditions.has_status(meta.conditions(vmi), "VolumesChange", "True"):
        name = meta.name(vmi)
        metadata["labels"] = {labels.VOLUME_MIGRATION: name if len(name) <= 63 else meta.uid(vmi)}
    return {
        "apiVersion": _KIND.api_version,
        "kind": _KIND.kind,
        "metadata": metadata,
        "spec": {
            "vmiName": meta.name(vmi),
            "priority": "user-triggered" if is_change else "system-critical",
        },
    }


class UpdateController:
    """Looks at instances that changed, where the installation allows migrations for updates."""

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
        vmi = self._cluster.vmis.get(*key)
        if vmi is None or get_str(vmi, "status", "phase") != "Running" or meta.is_being_deleted(vmi):
            return DONE
        if not needs_migration(vmi) and not is_outdated(vmi, self._cluster.images.launcher):
            return DONE
        strategy = self._cluster.settings().workload_update_strategy
        if "LiveMigrate" not in get_list(strategy, "workloadUpdateMethods"):
            return DONE
        if (
            not meta.is_condition_true(vmi, "LiveMigratable")
            or len(get_object(vmi, "status", "activePods")) > 1
        ):
            return DONE
        found = self._cluster.migrations.by_index("vmi", f"{key[0]}/{key[1]}")
        if any(not phases.is_finished(item) for item in found):
            return DONE
        wait = backoff.remaining_seconds(found, times.now())
        if wait > 0:
            return RequeueAfter(wait)
        if get_str(self._cluster.kubevirt(), "status", "phase") != "Deployed":
            return RequeueAfter(_RETRY_SECONDS)
        try:
            with self._expected.creating(key):
                created = await self._cluster.client.create(_KIND, update_migration(vmi))
        except StatusError as error:
            text = f"Error creating a Migration for automated workload update: {error.message}"
            self._cluster.recorder.event(vmi, "Warning", "FailedCreate", text)
            return RequeueAfter(_RETRY_SECONDS)
        text = f"Created Migration {meta.name(created)} for automated workload update"
        self._cluster.recorder.event(vmi, "Normal", "SuccessfulCreate", text)
        return RequeueAfter(_RETRY_SECONDS)


def _updated_instance(migration: JsonObject) -> list[Key]:
    is_update = labels.WORKLOAD_UPDATE_MIGRATION in meta.annotations(migration)
    return _instance_keys(migration) if is_update else []


def _instance_keys(migration: JsonObject) -> list[Key]:
    return [(meta.namespace(migration), get_str(migration, "spec", "vmiName"))]
