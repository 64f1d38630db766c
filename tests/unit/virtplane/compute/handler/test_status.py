"""The reported status."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects.structs import decode
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceGuestOSInfo
from virtplane.compute.apiserver.eviction import ALLOWED, Verdict, evaluate
from virtplane.compute.handler import status
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.libvirtd.agentanswers import AgentInterface
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.network.cards import Card
from virtplane.compute.handler.status import Report

VMI: dict[str, Any] = {
    "metadata": {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
    "spec": {
        "domain": {
            "memory": {"guest": "128Mi"},
            "cpu": {"cores": 2},
            "devices": {
                "interfaces": [{"name": "default", "masquerade": {}}],
                "disks": [{"name": "root", "disk": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "i"}}],
    },
    "status": {
        "phase": "Scheduled",
        "conditions": [{"type": "Ready", "status": "False"}],
        "activePods": {"p": "n"},
        "phaseTransitionTimestamps": [],
        "volumeStatus": [{"name": "root", "target": ""}],
    },
}


def report(**changes: Any) -> Report:
    values: dict[str, Any] = {
        "phase": "Running",
        "domain": DomainState("Running"),
        "domain_known": True,
        "facts": GuestFacts(),
        "emulation": True,
        "cards": {"default": Card("02:00:00:00:00:01", "eth0", addresses=("10.1.0.5",))},
        "machine": "pc-q35-7.2",
        "sync_error": None,
        "credentials": None,
        "now": "2026-11-21T00:00:00Z",
    }
    return Report(**values | changes)


def written(vmi: JsonObject, given: Report) -> JsonObject:
    """The status once the report has been written."""
    instance = decode(VirtualMachineInstance, vmi)
    changed = apply_json_patch(vmi, status.patch(instance, status.render(instance, given)))
    return get_object(changed, "status")


def condition(rendered: dict[str, Any], kind: str) -> dict[str, Any] | None:
    return next((item for item in rendered["conditions"] if item["type"] == kind), None)


def test_running_guest_reports_interfaces_topology_and_volumes() -> None:
    rendered = written(VMI, report())
    assert rendered["phase"] == "Running"
    assert rendered["phaseTransitionTimestamps"][-1]["phase"] == "Running"
    assert rendered["interfaces"] == [
        {
            "name": "default",
            "mac": "02:00:00:00:00:01",
            "queueCount": 1,
            "podInterfaceName": "eth0",
            "infoSource": "domain",
            "linkState": "up",
            "ipAddress": "10.1.0.5",
            "ipAddresses": ["10.1.0.5"],
        }
    ]
    assert rendered["currentCPUTopology"] == {"cores": 2, "sockets": 1, "threads": 1}
    assert rendered["volumeStatus"] == [{"name": "root", "target": "vda"}]
    assert rendered["activePods"] == {"p": "n"}


def test_interfaces_stay_as_they_were_reported_until_it_is_known_what_the_guest_has() -> None:
    vmi = deep_copy(VMI)
    vmi["status"] = written(VMI, report())
    assert written(vmi, report(cards={}, cards_known=False))["interfaces"] == vmi["status"]["interfaces"]
    assert "ipAddress" not in written(vmi, report(cards={}))["interfaces"][0]


@pytest.mark.parametrize("by_disk", [True, False])
def test_volumes_move_unless_the_guest_itself_cannot(by_disk: bool) -> None:
    vmi = deep_copy(VMI)
    if by_disk:
        vmi["spec"]["volumes"].append({"name": "h", "hostDisk": {"path": "/d", "type": "Disk"}})
    else:
        vmi["spec"]["domain"]["features"] = {"hypervPassthrough": {"enabled": True}}
        vmi["spec"]["domain"]["launchSecurity"] = {"sev": {}}
    rendered = written(vmi, report())
    live, storage = condition(rendered, "LiveMigratable"), condition(rendered, "StorageLiveMigratable")
    assert live is not None and storage is not None
    assert live["status"] == "False"
    if by_disk:
        assert (live["reason"], storage["status"]) == ("DisksNotLiveMigratable", "True")
    else:
        assert (live["reason"], storage["reason"]) == ("SEVNotLiveMigratable", "NotMigratable")
        text = (
            "SEVNotLiveMigratable: VMI uses SEV,"
            " HypervPassthroughNotLiveMigratable: VMI uses hyperv passthrough"
        )
        assert (storage["status"], storage["message"]) == ("False", text)


def test_a_disk_that_the_guest_lacks_has_no_device() -> None:
    claim = {"claimName": "c", "hotpluggable": True}
    vmi = deep_copy(VMI)
    vmi["spec"]["volumes"].insert(0, {"name": "later", "persistentVolumeClaim": claim})
    vmi["spec"]["domain"]["devices"]["disks"].insert(0, {"name": "later", "disk": {}})
    vmi["status"]["volumeStatus"].append({"name": "later", "target": ""})
    entries = written(vmi, report())["volumeStatus"]
    assert {entry["name"]: entry["target"] for entry in entries} == {"later": "", "root": "vda"}


def test_entries_of_volumes_are_virt_controllers_whatever_the_specification_says() -> None:
    entries = [
        {
            "name": "detached",
            "target": "",
            "phase": "Detaching",
            "hotplugVolume": {"attachPodName": "hp-volume-1"},
        },
        {"name": "persistent-state-for-this-vm", "target": ""},
    ]
    vmi = VMI | {"status": VMI["status"] | {"volumeStatus": entries}}
    assert written(vmi, report())["volumeStatus"] == entries


def test_conditions_of_others_are_kept() -> None:
    assert condition(written(VMI, report()), "Ready") == {"type": "Ready", "status": "False"}


def test_what_a_later_version_has_written_stays() -> None:
    """A newer controller's members, beside what changes here and in the same items of lists."""
    vmi = deep_copy(VMI)
    vmi["status"]["conditions"].append(
        {"type": "Paused", "status": "True", "lastProbeTime": None, "since": "then"}
    )
    vmi["status"]["volumeStatus"][0]["backend"] = "new"
    vmi["status"]["fresh"] = {"a": 1}
    rendered = written(vmi, report(domain=DomainState("Paused", "Paused")))
    assert condition(rendered, "Paused") == {
        "type": "Paused",
        "status": "True",
        "since": "then",
        "reason": "PausedByUser",
        "message": "VMI was paused by user",
        "lastProbeTime": None,
        "lastTransitionTime": "2026-11-21T00:00:00Z",
    }
    assert rendered["volumeStatus"] == [{"name": "root", "target": "vda", "backend": "new"}]
    assert rendered["fresh"] == {"a": 1}


def test_a_report_on_an_instance_that_was_written_meanwhile_changes_nothing() -> None:
    instance = decode(VirtualMachineInstance, VMI)
    operations = status.patch(instance, status.render(instance, report()))
    for changed in ({"uid": "other"}, {"resourceVersion": "8"}):
        with pytest.raises(JsonPatchError):
            apply_json_patch(VMI | {"metadata": VMI["metadata"] | changed}, operations)


def test_paused_guest_carries_the_condition_until_it_runs_again() -> None:
    paused = written(VMI, report(domain=DomainState("Paused", "Paused")))
    found = condition(paused, "Paused")
    assert found is not None
    assert (found["reason"], found["message"]) == ("PausedByUser", "VMI was paused by user")
    resumed = written(VMI | {"status": paused}, report())
    assert condition(resumed, "Paused") is None


def test_status_is_stable_when_nothing_changed() -> None:
    first = written(VMI, report())
    instance = decode(VirtualMachineInstance, VMI | {"status": first})
    assert status.render(instance, report(now="2027-01-01T00:00:00Z")) == instance.status


@pytest.mark.feature("VMC-91", "NET-31")
def test_guest_agent_enriches_interfaces_and_adds_its_own() -> None:
    facts = GuestFacts(
        True,
        VirtualMachineInstanceGuestOSInfo(name="Linux"),
        (
            AgentInterface("eth0", "02:00:00:00:00:01", ("10.0.2.2",)),
            AgentInterface("br0", "02:00:00:00:00:09", ("172.16.0.1",)),
        ),
    )
    rendered = written(VMI, report(facts=facts))
    first, second = rendered["interfaces"]
    assert first["infoSource"] == "domain, guest-agent"
    assert first["interfaceName"] == "eth0"
    assert first["ipAddress"] == "10.1.0.5"
    assert second == {
        "interfaceName": "br0",
        "mac": "02:00:00:00:00:09",
        "infoSource": "guest-agent",
        "ipAddress": "172.16.0.1",
        "ipAddresses": ["172.16.0.1"],
    }
    assert condition(rendered, "AgentConnected") is not None
    assert rendered["guestOSInfo"] == {"name": "Linux"}


def test_error_is_reported_and_cleared() -> None:
    failed = written(VMI, report(domain=None, phase="Scheduled", sync_error=("Reason", "why")))
    found = condition(failed, "Synchronized")
    assert found is not None
    assert found["status"] == "False"
    assert condition(written(VMI | {"status": failed}, report()), "Synchronized") is None


@pytest.mark.feature("NET-31")
def test_a_bridged_guests_own_addresses_are_reported_with_the_pods_first() -> None:
    interfaces = [{"name": "default", "bridge": {}}]
    vmi = VMI | {"spec": VMI["spec"] | {"domain": {"devices": {"interfaces": interfaces}}}}
    without_agent = written(vmi, report())["interfaces"][0]
    assert (without_agent["ipAddress"], without_agent["infoSource"]) == ("10.1.0.5", "domain")
    seen = AgentInterface("eth0", "02:00:00:00:00:01", ("fe80::1", "10.1.0.5"))
    facts = GuestFacts(True, agent_interfaces=(seen,))
    rendered = written(vmi, report(facts=facts))
    assert rendered["interfaces"][0] | {"ipAddresses": ["10.1.0.5", "fe80::1"]} == rendered["interfaces"][0]
    assert rendered["interfaces"][0]["ipAddress"] == "10.1.0.5"
    migratable = condition(rendered, "LiveMigratable")
    assert migratable is not None
    assert (migratable["status"], migratable["reason"]) == ("False", "InterfaceNotLiveMigratable")


def _evicted(strategy: str) -> tuple[Verdict, JsonObject]:
    """What becomes of the eviction of a guest as this node reports it, and its condition."""
    vmi = VMI | {"spec": VMI["spec"] | {"evictionStrategy": strategy}}
    vmi["status"] = written(vmi, report()) | {"nodeName": "node"}
    migratable = condition(vmi["status"], "LiveMigratable")
    assert migratable is not None
    return evaluate(decode(VirtualMachineInstance, vmi), {"spec": {"nodeName": "node"}}, "None"), migratable


@pytest.mark.feature("MIG-30", "NOD-03", "NOD-05")
def test_a_drain_is_told_that_the_guest_cannot_move() -> None:
    verdict, migratable = _evicted("LiveMigrate")
    assert (migratable["status"], migratable["reason"]) == ("False", "NotMigratable")
    assert verdict.refusal == "VMI vm is configured with an eviction strategy but is not live-migratable"
    assert not verdict.mark
    assert _evicted("LiveMigrateIfPossible")[0] == ALLOWED


@pytest.mark.parametrize(
    ("state", "before", "after"),
    [("frozen", None, "frozen"), ("thawed", "frozen", None), ("", "frozen", "frozen"), ("", None, None)],
)
def test_a_freeze_is_reported_until_the_agent_says_that_it_has_ended(
    state: str, before: str | None, after: str | None
) -> None:
    known = decode(VirtualMachineInstance, VMI)
    known = replace(known, status=replace(known.status, fs_freeze_status=before))
    told = status.render(known, report(facts=GuestFacts(True, freeze_state=state)))
    assert told.fs_freeze_status == after


def test_an_instance_that_failed_keeps_saying_why() -> None:
    why = written(VMI, report(phase="Failed", domain=None, sync_error=("Failed", "the disk is locked")))
    later = written(VMI | {"status": why}, report(phase="Failed", domain=None))
    assert (condition(later, "Synchronized") or {})["message"] == "the disk is locked"
    assert condition(written(VMI | {"status": why | {"phase": "Running"}}, report()), "Synchronized") is None
