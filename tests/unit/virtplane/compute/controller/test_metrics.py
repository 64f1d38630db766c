"""The metrics of virt-controller about instances and migrations, from an API server in memory."""

from __future__ import annotations

import pytest
from tests.support.controller_metrics import (
    VM,
    VMI,
    api_without_objects,
    instance,
    machine,
    pin,
    samples,
    served,
)
from tests.support.waiting import until

from kubecore.json import JsonObject
from virtplane.api import resources as kinds

_OWN = {"name": "vm", "namespace": "ns"}


async def test_an_instance_tells_the_addresses_of_its_cards() -> None:
    api = api_without_objects()
    cards: list[JsonObject] = [
        {"name": "default", "interfaceName": "eth0", "ipAddress": "10.0.0.2"},
        {"name": "blue", "interfaceName": "eth1"},
        {"interfaceName": "docker0", "ipAddress": "172.17.0.1"},
        {"interfaceName": "docker0", "ipAddress": "172.17.0.1"},
        {"mac": "02:00:00:00:00:01"},
    ]
    api.put(VMI, instance("vm", interfaces=cards))
    own = {**_OWN, "node": "node"}
    external = {**own, "type": "ExternalInterface"}
    assert await samples(api, "kubevirt_vmi_status_addresses") == [
        ({**external, "vnic_name": "default", "interface_name": "eth0", "address": "10.0.0.2"}, 1),
        ({**own, "type": "SystemInterface", "vnic_name": "blue", "interface_name": "eth1"}, 1),
        ({**external, "interface_name": "docker0", "address": "172.17.0.1"}, 1),
    ]


async def test_an_instance_tells_what_its_launcher_needs_besides_its_memory() -> None:
    api = api_without_objects()
    api.put(VMI, instance("given", memory={"memoryOverhead": "300Mi"}))
    waiting = instance("waiting")
    waiting["spec"]["domain"]["resources"] = {"requests": {"memory": "512Mi"}}
    api.put(VMI, waiting)
    found = await samples(api, "kubevirt_vmi_launcher_memory_overhead_bytes")
    told = {labels["name"]: value for labels, value in found}
    assert told["given"] == 300 << 20
    # The parts of a launcher, one processor and I/O thread, a display, and page tables of 512 MiB.
    assert told["waiting"] == ((240 + 8 + 8 + 32) << 20) + 536_871_000 // 512


async def test_what_a_user_writes_at_length_is_told_in_short() -> None:
    api, long = api_without_objects(), "x" * 1_000_000
    annotations = {f"vm.kubevirt.io/{name}": long for name in ("os", "workload", "flavor")}
    vm = machine("vm", "Stopped", instancetype={"name": long})
    vm["spec"]["template"]["metadata"]["annotations"] = annotations
    vm["spec"]["template"]["spec"]["domain"]["machine"]["type"] = long
    vm["status"]["instancetypeRef"] = pin(api, "u1.small", "kubevirt.io")
    api.put(VM, vm)
    vmi = instance("vm", guestOSInfo={"kernelRelease": long, "machine": long, "name": long})
    vmi["metadata"]["annotations"] = annotations
    api.put(VMI, vmi)
    for name in ("kubevirt_vm_info", "kubevirt_vmi_info"):
        [(labels, _)] = await samples(api, name)
        assert sum(map(len, labels.values())) < 4096


async def test_an_instance_tells_its_system_and_whether_it_is_in_the_way() -> None:
    api = api_without_objects()
    api.put(VMI, instance("fixed"))
    movable = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}
    api.put(VMI, instance("movable", launcherContainerImageVersion="launcher:2", **movable))
    api.put(VMI, instance("ended", phase="Failed"))
    found = {labels["name"]: labels for labels, _ in await samples(api, "kubevirt_vmi_info")}
    assert found["fixed"] == {
        "node": "node",
        "namespace": "ns",
        "name": "fixed",
        "phase": "running",
        "os": "fedora",
        "workload": "server",
        "guest_os_kernel_release": "6.1",
        "guest_os_machine": "pc-q35-7.2",
        "guest_os_arch": "x86_64",
        "guest_os_name": "Fedora",
        "guest_os_version_id": "42",
        "evictable": "false",
        "outdated": "true",
    }
    assert (found["movable"]["evictable"], found["movable"]["outdated"]) == ("true", "false")
    stuck = {labels["name"]: value for labels, value in await samples(api, "kubevirt_vmi_non_evictable")}
    assert stuck == {"fixed": 1, "movable": 0, "ended": 1}
    assert await samples(api, "kubevirt_vmi_number_of_outdated") == [({}, 1)]


@pytest.mark.feature("MON-24", "MON-25", "MON-26", "MON-27", "MON-28")
async def test_migrations_are_counted_by_phase_until_they_have_ended() -> None:
    api = api_without_objects()
    phases = ("", "Pending", "TargetReady", "Running", "Succeeded", "Failed", "Scheduling")
    for number, phase in enumerate(phases):
        metadata = {"name": f"m{number}", "namespace": "ns"}
        migration: JsonObject = {"metadata": metadata, "spec": {"vmiName": "v"}, "status": {"phase": phase}}
        api.put(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, migration)
    counts = {"unset": 1, "pending": 1, "scheduling": 1, "running": 2}
    for word, count in counts.items():
        assert await samples(api, f"kubevirt_vmi_migrations_in_{word}_phase") == [({}, count)]
    ended = {"vmi": "v", "vmim": "m4", "namespace": "ns"}
    assert await samples(api, "kubevirt_vmi_migration_succeeded") == [(ended, 1)]
    assert await samples(api, "kubevirt_vmi_migration_failed") == [({**ended, "vmim": "m5"}, 1)]


def _reached(**moments: str) -> list[JsonObject]:
    day = "2026-11-26T10:00:"
    return [{"phase": name, "phaseTransitionTimestamp": f"{day}{at}Z"} for name, at in moments.items()]


async def test_the_time_between_phases_is_told() -> None:
    api = api_without_objects()
    vmi = instance("vm", phase="Scheduled", phaseTransitionTimestamps=_reached(Scheduled="05"))
    vmi["metadata"]["creationTimestamp"] = "2026-11-26T10:00:00Z"
    api.put(VMI, vmi)
    moments = _reached(Scheduled="05", Running="12")
    async with served(api) as registry:
        api.put(
            VMI,
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
    api = api_without_objects()
    kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
    metadata = {"name": "m", "namespace": "ns", "creationTimestamp": "2026-11-26T10:00:00Z"}
    migration: JsonObject = {"metadata": metadata, "spec": {"vmiName": "v"}, "status": {"phase": "Running"}}
    api.put(kind, migration)
    async with served(api) as registry:
        status = {"phase": "Succeeded", "phaseTransitionTimestamps": _reached(Succeeded="30")}
        api.put(kind, {**migration, "status": status})
        name = "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds"
        await until(lambda: registry.get_sample_value(f"{name}_count", {"phase": "Succeeded"}) == 1)
        assert registry.get_sample_value(f"{name}_sum", {"phase": "Succeeded"}) == 30
