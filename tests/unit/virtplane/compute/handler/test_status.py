"""The reported status."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject, deep_copy
from virtplane.compute.apiserver.eviction import ALLOWED, Verdict, evaluate
from virtplane.compute.handler import status
from virtplane.compute.handler.libvirtcalls import DomainState
from virtplane.compute.handler.status import GuestFacts, Report

VMI: dict[str, Any] = {
    "metadata": {"name": "vm", "namespace": "ns"},
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
        "macs": {"default": "02:00:00:00:00:01"},
        "pod_addresses": ("10.1.0.5",),
        "machine": "pc-q35-7.2",
        "sync_error": None,
        "credentials": None,
        "now": "2026-11-21T00:00:00Z",
    }
    return Report(**values | changes)


def condition(rendered: dict[str, Any], kind: str) -> dict[str, Any] | None:
    return next((item for item in rendered["conditions"] if item["type"] == kind), None)


def test_running_guest_reports_interfaces_topology_and_volumes() -> None:
    rendered = status.render(VMI, report())
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


def test_a_disk_that_the_guest_lacks_has_no_device() -> None:
    claim = {"claimName": "c", "hotpluggable": True}
    vmi = deep_copy(VMI)
    vmi["spec"]["volumes"].insert(0, {"name": "later", "persistentVolumeClaim": claim})
    vmi["spec"]["domain"]["devices"]["disks"].insert(0, {"name": "later", "disk": {}})
    vmi["status"]["volumeStatus"].append({"name": "later", "target": ""})
    entries = status.render(vmi, report())["volumeStatus"]
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
    assert status.render(vmi, report())["volumeStatus"] == entries


def test_conditions_of_others_are_kept() -> None:
    assert condition(status.render(VMI, report()), "Ready") == {"type": "Ready", "status": "False"}


def test_paused_guest_carries_the_condition_until_it_runs_again() -> None:
    paused = status.render(VMI, report(domain=DomainState("Paused", "Paused")))
    found = condition(paused, "Paused")
    assert found is not None
    assert (found["reason"], found["message"]) == ("PausedByUser", "VMI was paused by user")
    resumed = status.render(VMI | {"status": paused}, report())
    assert condition(resumed, "Paused") is None


def test_status_is_stable_when_nothing_changed() -> None:
    first = status.render(VMI, report())
    assert status.render(VMI | {"status": first}, report(now="2027-01-01T00:00:00Z")) == first


@pytest.mark.feature("VMC-91", "NET-31")
def test_guest_agent_enriches_interfaces_and_adds_its_own() -> None:
    facts = GuestFacts(
        True,
        {"name": "Linux"},
        (
            {"name": "eth0", "mac": "02:00:00:00:00:01", "addresses": ["10.0.2.2"]},
            {"name": "br0", "mac": "02:00:00:00:00:09", "addresses": ["172.16.0.1"]},
        ),
    )
    rendered = status.render(VMI, report(facts=facts))
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
    failed = status.render(VMI, report(domain=None, phase="Scheduled", sync_error=("Reason", "why")))
    found = condition(failed, "Synchronized")
    assert found is not None
    assert found["status"] == "False"
    assert condition(status.render(VMI | {"status": failed}, report()), "Synchronized") is None


@pytest.mark.feature("NET-31")
def test_a_bridged_guests_own_addresses_are_reported_with_the_pods_first() -> None:
    interfaces = [{"name": "default", "bridge": {}}]
    vmi = VMI | {"spec": VMI["spec"] | {"domain": {"devices": {"interfaces": interfaces}}}}
    without_agent = status.render(vmi, report())["interfaces"][0]
    assert (without_agent["ipAddress"], without_agent["infoSource"]) == ("10.1.0.5", "domain")
    seen = {"name": "eth0", "mac": "02:00:00:00:00:01", "addresses": ["fe80::1", "10.1.0.5"]}
    rendered = status.render(vmi, report(facts=GuestFacts(True, {}, (seen,))))
    assert rendered["interfaces"][0] | {"ipAddresses": ["10.1.0.5", "fe80::1"]} == rendered["interfaces"][0]
    assert rendered["interfaces"][0]["ipAddress"] == "10.1.0.5"
    migratable = condition(rendered, "LiveMigratable")
    assert migratable is not None
    assert (migratable["status"], migratable["reason"]) == ("False", "InterfaceNotLiveMigratable")


def _evicted(strategy: str) -> tuple[Verdict, JsonObject]:
    """What becomes of the eviction of a guest as this node reports it, and its condition."""
    vmi = VMI | {"spec": VMI["spec"] | {"evictionStrategy": strategy}}
    vmi["status"] = status.render(vmi, report()) | {"nodeName": "node"}
    migratable = condition(vmi["status"], "LiveMigratable")
    assert migratable is not None
    return evaluate(vmi, {"spec": {"nodeName": "node"}}, "None"), migratable


@pytest.mark.feature("MIG-30", "NOD-03", "NOD-05")
def test_a_drain_is_told_that_the_guest_cannot_move() -> None:
    verdict, migratable = _evicted("LiveMigrate")
    assert (migratable["status"], migratable["reason"]) == ("False", "NotMigratable")
    assert verdict.refusal == "VMI vm is configured with an eviction strategy but is not live-migratable"
    assert not verdict.mark
    assert _evicted("LiveMigrateIfPossible")[0] == ALLOWED
