"""The metrics of virt-controller: machines, instances, snapshots and migrations, as the replica that leads
knows them.

Names and labels are KubeVirt's. A label without a value is not there, as there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client.core import Metric

from kubecore.json import get_object, get_str
from kubecore.objects import meta
from kubecore.runtime import key_of
from kubecore.runtime.metrics import add_sample
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import InstancetypeStatusRef
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller import instancefigures, machinefigures, pods, workloadupdates
from virtplane.compute.controller.machinefigures import Figure, LabelChoice
from virtplane.compute.controller.wanteddomains import WantedDomains

_SINCE = "status_last_transition_timestamp_seconds"
_OF_MACHINES: Mapping[str, str] = {
    "info": "Virtual machines",
    "create_date_timestamp_seconds": "When virtual machines were created",
    "resource_requests": "What virtual machines ask for, with their instance types",
    "resource_limits": "The limits that virtual machines set",
    "disk_allocated_size_bytes": "The sizes of the claims of virtual machines' disks",
    "vnic_info": "The network cards of virtual machines, as they are configured",
    "labels": "The labels of virtual machines",
    **{
        f"{group}_{_SINCE}": f"Since when a virtual machine is in the group of states {group}; 0 if it is not"
        for group in machinefigures.GROUPS
    },
}
_OF_INSTANCES: Mapping[str, str] = {
    "info": "Instances of virtual machines",
    "non_evictable": "Whether an instance is to be migrated when it is evicted, and cannot be",
    "status_addresses": "The addresses of instances",
    "vnic_info": "The network cards of instances",
    "launcher_memory_overhead_bytes": "The memory that a launcher needs besides the guest's",
}
_SNAPSHOT = "kubevirt_vmsnapshot_succeeded_timestamp_seconds"
_OUTDATED = "kubevirt_vmi_number_of_outdated"
NAMES = (
    *(f"kubevirt_vm_{name}" for name in _OF_MACHINES),
    *(f"kubevirt_vmi_{name}" for name in _OF_INSTANCES),
    *(_OUTDATED, _SNAPSHOT),
    *("kubevirt_vmi_migration_succeeded", "kubevirt_vmi_migration_failed"),
    *(f"kubevirt_vmi_migrations_in_{word}_phase" for word in ("unset", "pending", "scheduling", "running")),
)
_OTHER = "<other>"
_VENDOR = "instancetype.kubevirt.io/vendor"
_PUBLIC_VENDORS = ("kubevirt.io", "redhat.com")
"""Only names of their instance types and preferences are told: users' own may be many, and private."""
_DESCRIPTIONS = ("os", "workload", "flavor")
_LONGEST = 256
"""Characters of a label's value. What users write may be as long as an object, and is told at each scrape."""
_MIGRATION_PHASES: Mapping[str, str] = {
    "": "unset",
    "Pending": "pending",
    "Scheduling": "scheduling",
    **dict.fromkeys(("Scheduled", "PreparingTarget", "TargetReady", "Running"), "running"),
}
_FINISHED = {"Succeeded": "succeeded", "Failed": "failed"}


class _Families:
    """The metrics of one kind of object, by the rest of their names."""

    def __init__(self, start: str, texts: Mapping[str, str]) -> None:
        self._metrics = {
            name: Metric(f"{start}_{name}", text, "counter" if name.endswith(_SINCE) else "gauge")
            for name, text in texts.items()
        }

    def add(self, name: str, own: Mapping[str, str], figures: Iterable[Figure]) -> None:
        """Add values of an object, whose `own` labels each of them has."""
        metric = self._metrics[name]
        for labels, value in figures:
            told = {**own, **labels}
            add_sample(metric, {label: text[:_LONGEST] for label, text in told.items()}, value)

    def told(self) -> Iterator[Metric]:
        """Those that have a value."""
        return (metric for metric in self._metrics.values() if metric.samples)


class MachineMetrics:
    """Collects from the caches what is true when Prometheus asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._wanted = WantedDomains(cluster)

    def describe(self) -> list[Metric]:
        """Nothing: which metrics there are is known when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics' values now."""
        machines = {(vm.metadata.namespace, vm.metadata.name): vm for vm in self._cluster.vms.list()}
        yield from self._machines(machines.values())
        yield from self._instances(machines)
        yield from snapshots(self._cluster.snapshots.list())
        yield from migrations(self._cluster.migrations.list())

    def _machines(self, machines: Iterable[VirtualMachine]) -> Iterator[Metric]:
        families = _Families("kubevirt_vm", _OF_MACHINES)
        choice = LabelChoice(self._cluster.label_settings())
        claims = self._cluster.claims
        domains = self._wanted.of(machines)
        for vm in machines:
            of = vm.metadata
            own = {"name": of.name, "namespace": of.namespace}
            domain = domains[of.uid]
            families.add("info", own, [(self._described_machine(vm), 1)])
            created = machinefigures.seconds(of.creation_timestamp)
            families.add("create_date_timestamp_seconds", own, [({}, created)] if created else ())
            families.add("resource_requests", own, machinefigures.requests(domain))
            families.add("resource_limits", own, machinefigures.limits(domain))
            families.add(
                "disk_allocated_size_bytes", own, machinefigures.disks(vm, partial(claims.get, of.namespace))
            )
            families.add("vnic_info", own, machinefigures.cards(vm.spec.instance))
            for group, moment in machinefigures.status_times(vm).items():
                families.add(f"{group}_{_SINCE}", own, [({}, moment)])
            told = machinefigures.told_labels(vm, choice)
            families.add("labels", own, [(told, 1)] if told else ())
        return families.told()

    def _described_machine(self, vm: VirtualMachine) -> dict[str, str]:
        status = (vm.observed.printable_status or "").lower()
        return {
            **_described(get_object(vm.spec.template.metadata or {}, "annotations")),
            **self._references(vm),
            "machine_type": vm.spec.instance.domain.machine.type or "",
            "status": status,
            "status_group": machinefigures.STATUS_GROUPS.get(status, "<unknown>"),
        }

    def _instances(self, machines: Mapping[tuple[str, str], VirtualMachine]) -> Iterator[Metric]:
        families = _Families("kubevirt_vmi", _OF_INSTANCES)
        old = Metric(_OUTDATED, "Instances whose launchers are not of the current image", "gauge")
        settings, vmis = self._cluster.settings(), self._cluster.vmis.list()
        images = self._cluster.images
        outdated = set(map(key_of, workloadupdates.outdated(vmis, images.launcher)))
        for vmi in vmis:
            of = vmi.metadata
            own = {"namespace": of.namespace, "name": of.name}
            placed = {**own, "node": vmi.status.node_name or ""}
            strategy = vmi.spec.eviction_strategy or settings.eviction_strategy
            is_stuck = strategy == "LiveMigrate" and not is_true(vmi.status.conditions, "LiveMigratable")
            told = {
                **self._described_instance(vmi, machines.get((of.namespace, of.name))),
                "evictable": _text(not is_stuck),
                "outdated": _text(key_of(vmi) in outdated),
            }
            families.add("info", placed, [(told, 1)])
            families.add("non_evictable", placed, [({}, float(is_stuck))])
            families.add("status_addresses", placed, instancefigures.addresses(vmi))
            families.add("vnic_info", own, machinefigures.cards(vmi.spec))
            overhead = instancefigures.memory_overhead(vmi, settings, images)
            families.add("launcher_memory_overhead_bytes", own, overhead)
        add_sample(old, {}, len(outdated))
        return iter((*families.told(), old))

    def _described_instance(
        self, vmi: VirtualMachineInstance, machine: VirtualMachine | None
    ) -> dict[str, str]:
        system = vmi.status.guest_os_info or VirtualMachineInstanceGuestOSInfo()
        pod = pods.current_pod(vmi, self._cluster.pods_of(vmi.metadata.uid))
        return {
            "phase": (vmi.status.phase or "").lower(),
            **_described(vmi.metadata.annotations),
            **(self._references(machine) if machine is not None else {}),
            "guest_os_kernel_release": system.kernel_release or "",
            "guest_os_machine": (vmi.status.machine.type if vmi.status.machine is not None else "") or "",
            "guest_os_arch": system.machine or "",
            "guest_os_name": system.name or "",
            "guest_os_version_id": system.version_id or "",
            "vmi_pod": meta.name(pod) if pod is not None else "",
        }

    def _references(self, vm: VirtualMachine) -> dict[str, str]:
        """The names of the machine's instance type and preference, as far as they are told."""
        kept, status = vm.spec, vm.observed
        instancetype = kept.instancetype.name if kept.instancetype is not None else None
        preference = kept.preference.name if kept.preference is not None else None
        namespace = vm.metadata.namespace
        return {
            "instance_type": self._told(namespace, instancetype, status.instancetype_ref),
            "preference": self._told(namespace, preference, status.preference_ref),
        }

    def _told(self, namespace: str, name: str | None, known: InstancetypeStatusRef | None) -> str:
        if not name:
            return ""
        reference = known.controller_revision_ref if known is not None else None
        revision = self._cluster.revision(namespace, (reference and reference.name) or "")
        vendor = get_str(get_object(revision, "data", "metadata", "labels"), _VENDOR)
        return name if vendor in _PUBLIC_VENDORS else _OTHER


def snapshots(found: Iterable[VirtualMachineSnapshot]) -> Iterator[Metric]:
    """When the snapshots that have succeeded were taken (pure)."""
    metric = Metric(_SNAPSHOT, "When a snapshot of a virtual machine was taken", "gauge")
    for snapshot in found:
        status, of = snapshot.status, snapshot.metadata
        moment = machinefigures.seconds(status.creation_time)
        if status.phase == "Succeeded" and moment is not None:
            source = {"name": snapshot.spec.source.name, "snapshot_name": of.name, "namespace": of.namespace}
            add_sample(metric, source, moment)
    if metric.samples:
        yield metric


def migrations(found: Iterable[VirtualMachineInstanceMigration]) -> Iterator[Metric]:
    """How many migrations are in which phase, and which have ended how (pure)."""
    counts: Counter[str] = Counter()
    ended = {
        outcome: Metric(f"kubevirt_vmi_migration_{outcome}", f"Migrations that have {outcome}", "gauge")
        for outcome in _FINISHED.values()
    }
    for migration in found:
        phase, of = migration.status.phase or "", migration.metadata
        if phase in _FINISHED:
            labels = {"vmi": migration.spec.vmi_name or "", "vmim": of.name, "namespace": of.namespace}
            add_sample(ended[_FINISHED[phase]], labels, 1)
        else:
            counts[_MIGRATION_PHASES.get(phase, "unset")] += 1
    for word in dict.fromkeys(_MIGRATION_PHASES.values()):
        metric = Metric(
            f"kubevirt_vmi_migrations_in_{word}_phase", f"Migrations whose phase is {word}", "gauge"
        )
        add_sample(metric, {}, counts[word])
        yield metric
    yield from ended.values()


def _described(annotations: Mapping[str, Any]) -> dict[str, str]:
    return {name: get_str(annotations, f"vm.kubevirt.io/{name}") for name in _DESCRIPTIONS}


def _text(holds: bool) -> str:
    return "true" if holds else "false"
