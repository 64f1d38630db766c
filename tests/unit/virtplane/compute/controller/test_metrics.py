"""The metrics of virt-controller, from the objects on an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from tests.support.managers import keep_running, working
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.runtime import EventRecorder, Manager
from kubecore.runtime.metrics import collected
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.metrics import NAMES, MachineMetrics
from virtplane.compute.controller.phasetimes import PhaseTimes
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_VM, _VMI = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
_DESCRIBED = {"vm.kubevirt.io/os": "fedora", "vm.kubevirt.io/workload": "server"}


@asynccontextmanager
async def _served(api: MemoryApi) -> AsyncIterator[CollectorRegistry]:
    registry, client = CollectorRegistry(), api.client()
    async with EventRecorder(client, "test") as recorder:
        manager = Manager(client)
        cluster = Cluster(client, manager, recorder, Images("launcher:2", "sidecar:2"))
        cluster.prepare()
        times = PhaseTimes(cluster)
        keep_running(manager)
        async with working(manager):
            with collected(registry, MachineMetrics(cluster), *times.collectors):
                yield registry
    await client.close()
    assert list(registry.collect()) == []


async def _samples(api: MemoryApi, name: str) -> list[tuple[dict[str, str], float]]:
    async with _served(api) as registry:
        found = [sample for metric in registry.collect() for sample in metric.samples]
    return [(dict(sample.labels), sample.value) for sample in found if sample.name == name]


def _api() -> MemoryApi:
    return MemoryApi(_KINDS, whole=[_VM, _VMI])


def _machine(name: str, status: str, **spec: object) -> JsonObject:
    domain: JsonObject = {"devices": {}, "machine": {"type": "q35"}}
    template = {"metadata": {"annotations": _DESCRIBED}, "spec": {"domain": domain}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"template": template, **spec},
        "status": {"printableStatus": status},
    }


def _instance(name: str, **more: object) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": _DESCRIBED},
        "spec": {"domain": {"devices": {}}, "evictionStrategy": "LiveMigrate"},
        "status": {
            "phase": "Running",
            "nodeName": "node",
            "launcherContainerImageVersion": "launcher:1",
            "guestOSInfo": {"kernelRelease": "6.1", "machine": "x86_64", "name": "Fedora", "versionId": "42"},
            **more,
        },
    }


def _pin(api: MemoryApi, name: str, vendor: str) -> JsonObject:
    data = {"metadata": {"name": name, "labels": {"instancetype.kubevirt.io/vendor": vendor}}}
    api.put(
        resources.CONTROLLER_REVISIONS, {"metadata": {"name": f"r-{name}", "namespace": "ns"}, "data": data}
    )
    return {"controllerRevisionRef": {"name": f"r-{name}"}}


async def test_a_machine_tells_what_it_is_and_only_public_names() -> None:
    api = _api()
    vm = _machine("vm", "CrashLoopBackOff", instancetype={"name": "u1.small"}, preference={"name": "mine"})
    vm["status"]["instancetypeRef"] = _pin(api, "u1.small", "kubevirt.io")
    vm["status"]["preferenceRef"] = _pin(api, "mine", "us")
    api.put(_VM, vm)
    expected = {
        "name": "vm",
        "namespace": "ns",
        "os": "fedora",
        "workload": "server",
        "flavor": "<none>",
        "machine_type": "q35",
        "instance_type": "u1.small",
        "preference": "<other>",
        "status": "crashloopbackoff",
        "status_group": "error",
    }
    assert await _samples(api, "kubevirt_vm_info") == [(expected, 1)]
    [(labels, created)] = await _samples(api, "kubevirt_vm_create_date_timestamp_seconds")
    assert labels == {"name": "vm", "namespace": "ns"}
    assert created > 1_700_000_000


async def test_what_a_user_writes_at_length_is_told_in_short() -> None:
    api, long = _api(), "x" * 1_000_000
    annotations = {f"vm.kubevirt.io/{name}": long for name in ("os", "workload", "flavor")}
    vm = _machine("vm", "Stopped", instancetype={"name": long})
    vm["spec"]["template"]["metadata"]["annotations"] = annotations
    vm["spec"]["template"]["spec"]["domain"]["machine"]["type"] = long
    vm["status"]["instancetypeRef"] = _pin(api, "u1.small", "kubevirt.io")
    api.put(_VM, vm)
    vmi = _instance("vm", guestOSInfo={"kernelRelease": long, "machine": long, "name": long})
    vmi["metadata"]["annotations"] = annotations
    api.put(_VMI, vmi)
    for name in ("kubevirt_vm_info", "kubevirt_vmi_info"):
        [(labels, _)] = await _samples(api, name)
        assert sum(map(len, labels.values())) < 4096


async def test_an_instance_tells_its_system_and_whether_it_is_in_the_way() -> None:
    api = _api()
    api.put(_VMI, _instance("fixed"))
    movable = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}
    api.put(_VMI, _instance("movable", launcherContainerImageVersion="launcher:2", **movable))
    api.put(_VMI, _instance("ended", phase="Failed"))
    found = {labels["name"]: labels for labels, _ in await _samples(api, "kubevirt_vmi_info")}
    assert found["fixed"] == {
        "node": "node",
        "namespace": "ns",
        "name": "fixed",
        "phase": "running",
        "os": "fedora",
        "workload": "server",
        "flavor": "<none>",
        "instance_type": "<none>",
        "preference": "<none>",
        "guest_os_kernel_release": "6.1",
        "guest_os_machine": "x86_64",
        "guest_os_name": "Fedora",
        "guest_os_version_id": "42",
        "evictable": "false",
        "outdated": "true",
        "vmi_pod": "",
    }
    assert (found["movable"]["evictable"], found["movable"]["outdated"]) == ("true", "false")
    stuck = {labels["name"]: value for labels, value in await _samples(api, "kubevirt_vmi_non_evictable")}
    assert stuck == {"fixed": 1, "movable": 0, "ended": 1}
    assert await _samples(api, "kubevirt_vmi_number_of_outdated") == [({}, 1)]


@pytest.mark.feature("MON-24", "MON-25", "MON-26", "MON-27", "MON-28")
async def test_migrations_are_counted_by_phase_until_they_have_ended() -> None:
    api = _api()
    phases = ("", "Pending", "TargetReady", "Running", "Succeeded", "Failed", "Scheduling")
    for number, phase in enumerate(phases):
        metadata = {"name": f"m{number}", "namespace": "ns"}
        migration: JsonObject = {"metadata": metadata, "spec": {"vmiName": "v"}, "status": {"phase": phase}}
        api.put(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, migration)
    counts = {"unset": 1, "pending": 1, "scheduling": 1, "running": 2}
    for word, count in counts.items():
        assert await _samples(api, f"kubevirt_vmi_migrations_in_{word}_phase") == [({}, count)]
    ended = {"vmi": "v", "vmim": "m4", "namespace": "ns"}
    assert await _samples(api, "kubevirt_vmi_migration_succeeded") == [(ended, 1)]
    assert await _samples(api, "kubevirt_vmi_migration_failed") == [({**ended, "vmim": "m5"}, 1)]


async def test_the_names_are_those_that_the_alerts_are_checked_against() -> None:
    async with _served(_api()) as registry:
        found = {metric.name for metric in registry.collect()}
        assert {name for name in found if "phase_transition" not in name} == set(NAMES)


def _reached(**moments: str) -> list[JsonObject]:
    day = "2026-11-26T10:00:"
    return [{"phase": name, "phaseTransitionTimestamp": f"{day}{at}Z"} for name, at in moments.items()]


async def test_the_time_between_phases_is_told() -> None:
    api = _api()
    vmi = _instance("vm", phase="Scheduled", phaseTransitionTimestamps=_reached(Scheduled="05"))
    vmi["metadata"]["creationTimestamp"] = "2026-11-26T10:00:00Z"
    api.put(_VMI, vmi)
    moments = _reached(Scheduled="05", Running="12")
    async with _served(api) as registry:
        api.put(
            _VMI,
            {**vmi, "status": {**vmi["status"], "phase": "Running", "phaseTransitionTimestamps": moments}},
        )
        name = "kubevirt_vmi_phase_transition_time"
        phases = {"phase": "Running", "last_phase": "Scheduled"}
        await until(lambda: registry.get_sample_value(f"{name}_seconds_count", phases) == 1)
        assert registry.get_sample_value(f"{name}_seconds_sum", phases) == 7
        created = f"{name}_from_creation_seconds"
        assert registry.get_sample_value(f"{created}_sum", {"phase": "Running"}) == 12
        assert registry.get_sample_value(f"{created}_bucket", {"phase": "Running", "le": "10.0"}) == 0
        assert registry.get_sample_value(f"{created}_count", {"phase": "Scheduled"}) is None, (
            "it was so before"
        )


async def test_the_time_that_a_migration_takes_is_told() -> None:
    api = _api()
    kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
    metadata = {"name": "m", "namespace": "ns", "creationTimestamp": "2026-11-26T10:00:00Z"}
    migration: JsonObject = {"metadata": metadata, "spec": {"vmiName": "v"}, "status": {"phase": "Running"}}
    api.put(kind, migration)
    async with _served(api) as registry:
        status = {"phase": "Succeeded", "phaseTransitionTimestamps": _reached(Succeeded="30")}
        api.put(kind, {**migration, "status": status})
        name = "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds"
        await until(lambda: registry.get_sample_value(f"{name}_count", {"phase": "Succeeded"}) == 1)
        assert registry.get_sample_value(f"{name}_sum", {"phase": "Succeeded"}) == 30
