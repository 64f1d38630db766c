"""The metrics of virt-controller: machines, instances and migrations, as the replica that leads knows them.

Names and labels are KubeVirt's. A label without a value is `_NONE`, as there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from kubecore.json import get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import parse_time
from kubecore.runtime import key_of
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import InstancetypeStatusRef
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller import pods, workloadupdates

NAMES = (
    *("kubevirt_vm_info", "kubevirt_vm_create_date_timestamp_seconds"),
    *("kubevirt_vmi_info", "kubevirt_vmi_non_evictable", "kubevirt_vmi_number_of_outdated"),
    *("kubevirt_vmi_migration_succeeded", "kubevirt_vmi_migration_failed"),
    *(f"kubevirt_vmi_migrations_in_{word}_phase" for word in ("unset", "pending", "scheduling", "running")),
)
_NONE, _OTHER = "<none>", "<other>"
_VENDOR = "instancetype.kubevirt.io/vendor"
_PUBLIC_VENDORS = ("kubevirt.io", "redhat.com")
"""Only names of their instance types and preferences are told: users' own may be many, and private."""
_DESCRIPTIONS = ("os", "workload", "flavor")
_VMI_LABELS = (
    *("node", "namespace", "name", "phase", *_DESCRIPTIONS, "instance_type", "preference"),
    *("guest_os_kernel_release", "guest_os_machine", "guest_os_name", "guest_os_version_id"),
    *("evictable", "outdated", "vmi_pod"),
)
_VM_LABELS = (
    *("name", "namespace", *_DESCRIPTIONS, "machine_type", "instance_type", "preference"),
    *("status", "status_group"),
)
_STATUS_GROUPS: Mapping[str, str] = {
    word: group
    for group, words in {
        "starting": "provisioning starting waitingforvolumebinding",
        "running": "running",
        "migrating": "migrating",
        "non_running": "stopped paused stopping terminating",
        "error": "crashloopbackoff unknown errorunschedulable errimagepull imagepullbackoff errorpvcnotfound"
        " datavolumeerror",
    }.items()
    for word in words.split()
}
_MIGRATION_PHASES: Mapping[str, str] = {
    "": "unset",
    "Pending": "pending",
    "Scheduling": "scheduling",
    **dict.fromkeys(("Scheduled", "PreparingTarget", "TargetReady", "Running"), "running"),
}
_LONGEST = 256
"""Characters of a label's value."""
_FINISHED = {"Succeeded": "succeeded", "Failed": "failed"}


class MachineMetrics:
    """Collects from the caches what is true when Prometheus asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: which metrics there are is known when they are collected."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics' values now."""
        machines = {(vm.metadata.namespace, vm.metadata.name): vm for vm in self._cluster.vms.list()}
        yield from self._machines(machines.values())
        yield from self._instances(machines)
        yield from migrations(self._cluster.migrations.list())

    def _machines(self, machines: Iterable[VirtualMachine]) -> Iterator[GaugeMetricFamily]:
        info = GaugeMetricFamily("kubevirt_vm_info", "Virtual machines", labels=_VM_LABELS)
        created = GaugeMetricFamily(
            "kubevirt_vm_create_date_timestamp_seconds",
            "When virtual machines were created",
            labels=("name", "namespace"),
        )
        for vm in machines:
            of, template = vm.metadata, vm.spec.template.metadata
            machine, status = vm.spec.instance.domain.machine, (vm.observed.printable_status or "").lower()
            described = _described(get_object(template or {}, "annotations"))
            kind = _bounded((machine.type if machine is not None else "") or _NONE)
            group = _STATUS_GROUPS.get(status, "<unknown>")
            info.add_metric(
                [of.name, of.namespace, *described, kind, *self._references(vm), status, group], 1
            )
            if of.creation_timestamp:
                stamp = parse_time(of.creation_timestamp).timestamp()
                created.add_metric([of.name, of.namespace], stamp)
        yield from (info, created)

    def _instances(self, machines: Mapping[tuple[str, str], VirtualMachine]) -> Iterator[GaugeMetricFamily]:
        info = GaugeMetricFamily("kubevirt_vmi_info", "Instances of virtual machines", labels=_VMI_LABELS)
        stuck = GaugeMetricFamily(
            "kubevirt_vmi_non_evictable",
            "Whether an instance is to be migrated when it is evicted, and cannot be",
            labels=("node", "namespace", "name"),
        )
        old = GaugeMetricFamily(
            "kubevirt_vmi_number_of_outdated", "Instances whose launchers are not of the current image"
        )
        settings, vmis = self._cluster.settings(), self._cluster.vmis.list()
        outdated = set(map(key_of, workloadupdates.outdated(vmis, self._cluster.images.launcher)))
        for vmi in vmis:
            of, node, phase = vmi.metadata, vmi.status.node_name or "", vmi.status.phase or ""
            movable = is_true(vmi.status.conditions, "LiveMigratable")
            strategy = vmi.spec.eviction_strategy or settings.eviction_strategy
            is_stuck = strategy == "LiveMigrate" and not movable
            machine = machines.get((of.namespace, of.name))
            references = self._references(machine) if machine is not None else (_NONE, _NONE)
            pod = pods.current_pod(vmi, self._cluster.pods_of(of.uid))
            system = vmi.status.guest_os_info or VirtualMachineInstanceGuestOSInfo()
            texts = (system.kernel_release, system.machine, system.name, system.version_id)
            info.add_metric(
                [
                    node,
                    of.namespace,
                    of.name,
                    phase.lower(),
                    *_described(of.annotations),
                    *references,
                    *(_bounded(text or "") for text in texts),
                    _text(not is_stuck),
                    _text(key_of(vmi) in outdated),
                    meta.name(pod) if pod is not None else "",
                ],
                1,
            )
            stuck.add_metric([node, of.namespace, of.name], float(is_stuck))
        old.add_metric([], len(outdated))
        yield from (info, stuck, old)

    def _references(self, vm: VirtualMachine) -> tuple[str, str]:
        """The names of the machine's instance type and preference, as far as they are told."""
        kept, status = vm.spec, vm.observed
        instancetype = kept.instancetype.name if kept.instancetype is not None else None
        preference = kept.preference.name if kept.preference is not None else None
        namespace = vm.metadata.namespace
        return (
            self._told(namespace, instancetype, status.instancetype_ref),
            self._told(namespace, preference, status.preference_ref),
        )

    def _told(self, namespace: str, name: str | None, known: InstancetypeStatusRef | None) -> str:
        if not name:
            return _NONE
        reference = known.controller_revision_ref if known is not None else None
        revision = self._cluster.revision(namespace, (reference and reference.name) or "")
        vendor = get_str(get_object(revision, "data", "metadata", "labels"), _VENDOR)
        return _bounded(name) if vendor in _PUBLIC_VENDORS else _OTHER


def migrations(found: Iterable[VirtualMachineInstanceMigration]) -> Iterator[GaugeMetricFamily]:
    """How many migrations are in which phase, and which have ended how (pure)."""
    counts: Counter[str] = Counter()
    ended = {
        outcome: GaugeMetricFamily(
            f"kubevirt_vmi_migration_{outcome}",
            f"Migrations that have {outcome}",
            labels=("vmi", "vmim", "namespace"),
        )
        for outcome in _FINISHED.values()
    }
    for migration in found:
        phase = migration.status.phase or ""
        if phase in _FINISHED:
            labels = [migration.spec.vmi_name or "", migration.metadata.name, migration.metadata.namespace]
            ended[_FINISHED[phase]].add_metric(labels, 1)
        else:
            counts[_MIGRATION_PHASES.get(phase, "unset")] += 1
    for word in dict.fromkeys(_MIGRATION_PHASES.values()):
        name = f"kubevirt_vmi_migrations_in_{word}_phase"
        yield GaugeMetricFamily(name, f"Migrations whose phase is {word}", value=counts[word])
    yield from ended.values()


def _described(annotations: Mapping[str, Any]) -> list[str]:
    return [_bounded(get_str(annotations, f"vm.kubevirt.io/{name}")) or _NONE for name in _DESCRIPTIONS]


def _bounded(text: str) -> str:
    """The beginning of what a user wrote: it may be as long as an object, and is told at each scrape."""
    return text[:_LONGEST]


def _text(holds: bool) -> str:
    return "true" if holds else "false"
