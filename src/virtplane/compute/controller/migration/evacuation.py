"""Evacuation: migrates guests from drained nodes, and guests whose launcher pod was to be evicted."""

from __future__ import annotations

from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument
from kubecore.runtime import DONE, Controller, Expectations, Key, RequeueAfter, Result, key_of
from kubecore.runtime.informer import EventType
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller.migration import backoff, phases

_KIND = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS

_UNREADABLE_SECONDS = 60.0
"""After so long it is looked again whether a migration that could not be read was corrected."""


def is_drained(node: JsonObject | None, taint_key: str) -> bool:
    """Whether the node has the taint by which administrators drain it of guests."""
    taints = get_list(node, "spec", "taints")
    return any(item.get("key") == taint_key and item.get("effect") == "NoSchedule" for item in taints)


def is_candidate(vmi: VirtualMachineInstance, default_strategy: str, *, drained: bool) -> bool:
    """Whether a running instance must be evacuated and can be migrated."""
    status = vmi.status
    if not drained and (status.evacuation_node_name or "") != (status.node_name or ""):
        return False
    if status.phase != "Running" or vmi.metadata.is_being_deleted:
        return False
    if len(status.active_pods) > 1 or not is_true(status.conditions, "LiveMigratable"):
        return False
    strategy = vmi.spec.eviction_strategy or default_strategy
    return strategy in ("LiveMigrate", "LiveMigrateIfPossible")


def evacuation(vmi: VirtualMachineInstance) -> JsonObject:
    """The migration that evacuates an instance."""
    by_descheduler = vmi.metadata.annotations.get(labels.EVICTION_SOURCE) == "descheduler"
    return {
        "apiVersion": _KIND.api_version,
        "kind": _KIND.kind,
        "metadata": {
            "generateName": "kubevirt-evacuation-",
            "namespace": vmi.metadata.namespace,
            "annotations": {labels.EVACUATION_MIGRATION: vmi.status.node_name or ""},
        },
        "spec": {
            "vmiName": vmi.metadata.name,
            "priority": "system-maintenance" if by_descheduler else "system-critical",
        },
    }


class EvacuationController:
    """Creates migrations for evacuations, node by node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.controller = Controller("virt-controller-evacuation", self._reconcile)
        self.controller.watch(cluster.nodes, predicate=_changes_taints)
        self.controller.watch(cluster.vmis, _node_keys)
        self.controller.watch(cluster.migrations, self._migration_keys)
        self.controller.watch(cluster.kubevirts, lambda _: map(key_of, cluster.nodes.list()))
        self._expected = Expectations(self.controller, cluster.migrations, _evacuated_node)

    def _migration_keys(self, migration: VirtualMachineInstanceMigration) -> list[Key]:
        key = migration.metadata.namespace, migration.spec.vmi_name or ""
        vmi = self._cluster.vmis.get(*key) if key not in self._cluster.vmis.unfit else None
        return _node_keys(vmi) if vmi is not None else []

    async def _reconcile(self, key: Key) -> Result:
        if not await self._expected.settled(key):
            return DONE
        node_name = key[1]
        settings = self._cluster.settings()
        taint = settings.configuration.migrations.node_drain_taint_key or ""
        drained = is_drained(self._cluster.nodes.get(None, node_name), taint)
        wait = 0.0
        failure: StatusError | None = None
        for vmi in self._cluster.vmis.by_index("node", node_name):
            if not is_candidate(vmi, settings.eviction_strategy, drained=drained):
                continue
            try:
                migrations = self._cluster.migrations_of(vmi)
            except UnfitDocument:
                wait = min(wait or _UNREADABLE_SECONDS, _UNREADABLE_SECONDS)
                continue  # The migration may be running; the migration controller reports it as undecodable.
            if not all(phases.is_finished(item) for item in migrations):
                continue
            remaining = backoff.remaining_seconds(migrations, times.now())
            if remaining > 0:
                wait = min(wait or remaining, remaining)
                continue
            try:
                with self._expected.creating(key):
                    created = await self._cluster.client.create(_KIND, evacuation(vmi))
            except StatusError as error:
                text = f"Error creating a Migration: {error.message}"
                self._cluster.recorder.event(described(vmi), "Warning", "FailedCreate", text)
                failure = error
                continue
            text = f"Created Migration {meta.name(created)}"
            self._cluster.recorder.event(described(vmi), "Normal", "SuccessfulCreate", text)
        if failure is not None:
            raise failure  # other instances had their turn; this one is retried with back-off
        return RequeueAfter(wait) if wait else DONE


def _changes_taints(event: EventType, old: JsonObject | None, new: JsonObject) -> bool:
    """Whether a change of the node affects evacuation; heartbeats do not."""
    if old is None or event == "DELETED":
        return True
    return get_list(old, "spec", "taints") != get_list(new, "spec", "taints")


def _evacuated_node(migration: VirtualMachineInstanceMigration) -> list[Key]:
    node = migration.metadata.annotations.get(labels.EVACUATION_MIGRATION)
    return [("", node)] if node else []


def _node_keys(vmi: VirtualMachineInstance) -> list[Key]:
    node = vmi.status.node_name
    return [("", node)] if node else []
