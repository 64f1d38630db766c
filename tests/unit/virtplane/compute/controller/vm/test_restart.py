"""Which changes of a VM need a restart of its guest."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.compute.controller.vm import liveupdate, restart
from virtplane.compute.controller.vm.liveupdate import Update


def _needs_restart(before: JsonObject, after: JsonObject, vmi: JsonObject, *, live_update: bool) -> bool:
    started, current = decode(VirtualMachineSpec, before), decode(VirtualMachineSpec, after)
    running = decode(VirtualMachineInstance, vmi)
    return restart.needs_restart(started, current, running, live_update=live_update)


def _network_needs_restart(template: JsonObject, vmi: JsonObject) -> bool:
    wanted, running = decode(VirtualMachineInstanceSpec, template), decode(VirtualMachineInstance, vmi)
    return restart.network_needs_restart(wanted, running)


def _live_update(vm: JsonObject, vmi: JsonObject) -> Update:
    machine, running = decode(VirtualMachine, vm), decode(VirtualMachineInstance, vmi)
    return liveupdate.live_update(machine, running, cpu_allocation_ratio=10)


def _spec(**domain: Any) -> JsonObject:
    return {"template": {"spec": {"domain": domain}}}


@pytest.mark.feature("VML-22")
def test_sockets_and_memory_reach_a_running_guest_but_cores_do_not() -> None:
    before = _spec(cpu={"sockets": 1, "cores": 1}, memory={"guest": "1Gi"})
    grown = _spec(cpu={"sockets": 2, "cores": 1}, memory={"guest": "2Gi"})
    assert not _needs_restart(before, grown, {}, live_update=True)
    assert _needs_restart(before, grown, {}, live_update=False)
    assert _needs_restart(before, _spec(cpu={"sockets": 1, "cores": 2}), {}, live_update=True)


@pytest.mark.feature("VML-21")
@pytest.mark.parametrize(
    "added",
    [
        {"devices": {"tpm": {}}},
        {"devices": {"rng": {}}},
        {"features": {"smm": {}}},
        {"launchSecurity": {"sev": {}}},
        {"devices": {"disks": [{"name": "d", "cdrom": {}}]}},
    ],
)
def test_an_object_without_fields_can_ask_for_a_device_or_feature(added: JsonObject) -> None:
    before = _spec(devices={"disks": [{"name": "d", "disk": {}}]} if "disks" in str(added) else {})
    assert _needs_restart(before, _spec(**added), {}, live_update=True)
    assert not _needs_restart(_spec(**added), _spec(**added), {}, live_update=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"devices": {}, "resources": {}}),
        ({"resources": {"requests": {}}}, {"resources": {}}),
        ({"features": {}}, {"features": {"acpi": {}}}),
        ({}, {"firmware": {"uuid": "running"}}),
        ({}, {"cpu": {"sockets": 2}}),
        ({"cpu": {}}, {"cpu": {"sockets": 2}}),
        ({}, {"memory": {"guest": "1Gi"}}),
        ({"devices": {"disks": []}}, {"devices": {"disks": None}}),
    ],
)
def test_what_means_the_same_empty_and_absent_asks_for_no_restart(
    before: JsonObject, after: JsonObject
) -> None:
    vmi = {"spec": {"domain": {"firmware": {"uuid": "running"}}}}
    assert not _needs_restart(_spec(**before), _spec(**after), vmi, live_update=True)
    assert not _needs_restart(_spec(**after), _spec(**before), vmi, live_update=True)


@pytest.mark.feature("VML-22")
def test_hotpluggable_volumes_come_and_go_freely() -> None:
    volume = {"name": "new", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
    after = _spec(devices={"disks": [{"name": "new", "disk": {}}]})
    after["template"]["spec"]["volumes"] = [volume]
    assert not _needs_restart(_spec(), after, {}, live_update=True)


def test_a_running_guest_follows_the_state_of_a_link() -> None:
    def template(**state: str) -> JsonObject:
        devices = {"interfaces": [{"name": "default", "masquerade": {}, **state}]}
        return {"domain": {"devices": devices}, "networks": [{"name": "default", "pod": {}}]}

    running = {"spec": template()}
    for state in ({}, {"state": "up"}, {"state": "down"}):
        assert not _network_needs_restart(template(**state), running)


@pytest.mark.feature("VML-38")
@pytest.mark.parametrize(
    ("network", "interface", "needed"),
    [
        ({"multus": {"networkName": "blue"}}, {"bridge": {}}, False),
        ({"multus": {"networkName": "blue"}}, {"bridge": {}, "state": "absent"}, False),
        ({"multus": {"networkName": "blue"}}, {"binding": {"name": "plugin"}}, True),
        ({"multus": {"networkName": "blue"}}, {"sriov": {}}, True),
        ({"pod": {}}, {"bridge": {}}, True),
    ],
)
def test_only_bridged_interfaces_of_secondary_networks_come_to_a_running_guest(
    network: JsonObject, interface: JsonObject, needed: bool
) -> None:
    template = {
        "domain": {"devices": {"interfaces": [{"name": "new", **interface}]}},
        "networks": [{"name": "new", **network}],
    }
    assert _network_needs_restart(template, {"spec": {}}) is needed


@pytest.mark.parametrize(
    ("field", "running", "wanted"),
    [
        ("macAddress", "02:00:00:00:00:01", "02:00:00:00:00:02"),
        ("macAddress", None, "02:00:00:00:00:01"),
        ("macAddress", "02:00:00:00:00:01", None),
        ("model", "virtio", "e1000e"),
        ("model", None, "e1000e"),
    ],
)
def test_a_running_guests_card_keeps_address_and_model_until_a_restart(
    field: str, running: str | None, wanted: str | None
) -> None:
    def spec(value: str | None) -> JsonObject:
        card = {"name": "default", "masquerade": {}} | ({field: value} if value else {})
        template = {"domain": {"devices": {"interfaces": [card]}}}
        return {"template": {"spec": template | {"networks": [{"name": "default", "pod": {}}]}}}

    vmi = {"spec": spec(running)["template"]["spec"]}
    assert _needs_restart(spec(running), spec(wanted), vmi, live_update=True)
    assert not _needs_restart(spec(running), spec(running), vmi, live_update=True)


def test_a_guest_keeps_a_network_that_the_template_lost_until_a_restart() -> None:
    card = {"name": "net", "bridge": {}}
    network = {"name": "net", "multus": {"networkName": "n"}}
    with_network = {"domain": {"devices": {"interfaces": [card]}}, "networks": [network]}
    started, bare = {"template": {"spec": with_network}}, _spec(devices={})
    assert _needs_restart(started, bare, {"spec": with_network}, live_update=True)
    # The instance of a template that names none has the default network.
    assert not _needs_restart(bare, bare, {"spec": with_network}, live_update=True)


def test_an_empty_model_is_none() -> None:
    def template(**model: str) -> JsonObject:
        card = {"name": "default", "masquerade": {}, **model}
        return {"domain": {"devices": {"interfaces": [card]}}, "networks": [{"name": "default", "pod": {}}]}

    assert not _network_needs_restart(template(model=""), {"spec": template()})


def _running(sockets: int, **more: Any) -> JsonObject:
    cpu = {"sockets": sockets, "cores": 1, "threads": 1, "maxSockets": 4}
    return {"spec": {"domain": {"cpu": cpu, **more}}, "status": {"phase": "Running", "conditions": []}}


@pytest.mark.feature("VML-25")
def test_more_sockets_become_a_guarded_patch_of_the_instance() -> None:
    vmi = _running(1)
    vmi["status"]["conditions"] = [{"type": "LiveMigratable", "status": "True"}]
    update = _live_update(_vm({"sockets": 3}), vmi)
    assert [item["op"] for item in update.operations] == ["test", "replace"]
    assert update.operations[1]["value"] == 3


@pytest.mark.feature("VML-25")
def test_more_sockets_need_a_restart_where_the_guest_cannot_migrate() -> None:
    pinned = _running(1)
    pinned["spec"]["domain"]["cpu"]["dedicatedCpuPlacement"] = True
    update = _live_update(_vm({"sockets": 3}), pinned)
    assert update.operations == []
    assert update.restart_message.endswith("CPU-hotplug is only available for migratable VMs")


@pytest.mark.feature("VML-25")
def test_sockets_are_plugged_in_place_where_the_guest_cannot_migrate() -> None:
    update = _live_update(_vm({"sockets": 3}), _running(1))
    assert [item["op"] for item in update.operations] == ["test", "replace"]
    assert update.restart_message == ""


@pytest.mark.feature("VML-21", "VML-25")
def test_a_change_that_no_node_has_room_for_needs_a_restart_until_it_is_taken_back() -> None:
    vmi = _running(3)
    vmi["status"]["currentCPUTopology"] = {"sockets": 1, "cores": 1, "threads": 1}
    pending = {"type": "HotVCPUChange", "status": "True", "message": "too large"}
    vmi["status"]["conditions"] = [{**pending, "reason": "PodResizeInfeasible"}]
    assert "too large" in _live_update(_vm({"sockets": 3}), vmi).restart_message
    back = _live_update(_vm({"sockets": 1}), vmi)
    assert (back.restart_message, back.error) == ("", None)
    assert back.operations[-1] == {"op": "replace", "path": "/spec/domain/cpu/sockets", "value": 1}
    vmi["status"]["conditions"] = [{**pending, "reason": "PodResizeDeferred"}]
    assert _live_update(_vm({"sockets": 3}), vmi).restart_message == ""
    resized = {"reason": "PodResized", "message": "the pod has room for 3 CPU sockets"}
    vmi["status"]["conditions"] = [{**pending, **resized}]
    late = _live_update(_vm({"sockets": 1}), vmi)
    assert late.restart_message == "Reduction of CPU socket count requires a restart"


def test_fewer_or_too_many_sockets_need_a_restart() -> None:
    fewer = _live_update(_vm({"sockets": 1}), _running(2))
    assert fewer.restart_message == "Reduction of CPU socket count requires a restart"
    many = _live_update(_vm({"sockets": 9}), _running(2))
    assert many.restart_message.endswith("higher than what's available")


def test_a_second_change_waits_for_the_first() -> None:
    vmi = _running(1)
    vmi["status"]["conditions"] = [{"type": "HotVCPUChange", "status": "True"}]
    update = _live_update(_vm({"sockets": 2}), vmi)
    assert update.error is not None
    assert update.error.message.endswith("another CPU hotplug is in progress")


def _vm(cpu: JsonObject) -> JsonObject:
    return {"spec": _spec(cpu=cpu)}
