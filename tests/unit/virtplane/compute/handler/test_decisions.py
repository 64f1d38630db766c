"""What virt-handler decides, for every state that an instance can be in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler import decisions
from virtplane.compute.handler.decisions import Action, Observation
from virtplane.compute.handler.libvirtd.calls import DomainState

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def instance(
    phase: str = "Scheduled",
    *,
    leaving: bool = False,
    annotations: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> VirtualMachineInstance:
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "annotations": annotations}
    if leaving:
        metadata["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    document = {
        "metadata": metadata,
        "spec": {"domain": {"devices": {}}} | spec,
        "status": {"phase": phase} | (status or {}),
    }
    return decode(VirtualMachineInstance, document)


def seen(domain: DomainState | None = None, **changes: Any) -> Observation:
    values: dict[str, Any] = {"launcher_ready": True, "launcher_gone": False, "domain": domain}
    return Observation(**values | changes)


RUNNING = DomainState("Running")


def test_scheduled_instance_is_started_once_its_launcher_is_ready() -> None:
    assert decisions.next_action(instance(), seen(launcher_ready=False), NOW) is Action.WAIT
    assert decisions.next_action(instance(), seen(), NOW) is Action.START
    assert decisions.next_action(instance(), seen(RUNNING), NOW) is Action.NOTHING


def test_running_instance_without_domain_is_not_started_again() -> None:
    assert decisions.next_action(instance("Running"), seen(), NOW) is Action.NOTHING


def test_domain_that_was_defined_but_not_started_is_started() -> None:
    defined = seen(DomainState("Shutoff", "Unknown"))
    assert decisions.next_action(instance(), defined, NOW) is Action.START
    assert decisions.next_phase(instance(), defined) == "Scheduled"
    assert decisions.next_action(instance(leaving=True), defined, NOW) is Action.RELEASE


def test_guest_that_ended_unseen_is_not_taken_for_running() -> None:
    forgotten = seen(DomainState("Shutoff", "Unknown"))
    assert decisions.next_phase(instance("Running"), forgotten) == "Failed"
    assert decisions.next_action(instance("Running"), forgotten, NOW) is Action.NOTHING


@pytest.mark.feature("VML-19")
def test_deletion_presses_the_power_button_until_the_grace_period_has_passed() -> None:
    vmi = instance("Running", leaving=True, terminationGracePeriodSeconds=30)
    assert decisions.next_action(vmi, seen(RUNNING), NOW) is Action.SHUT_DOWN
    early = seen(RUNNING, shutdown_started=NOW - timedelta(seconds=29))
    assert decisions.next_action(vmi, early, NOW) is Action.SHUT_DOWN
    late = seen(RUNNING, shutdown_started=NOW - timedelta(seconds=30))
    assert decisions.next_action(vmi, late, NOW) is Action.DESTROY


def test_a_guest_is_shut_down_when_its_pod_is_deleted_or_its_node_drained() -> None:
    told = seen(RUNNING, terminating=True)
    assert decisions.next_action(instance("Running"), told, NOW) is Action.SHUT_DOWN
    assert decisions.next_action(instance("Scheduled"), seen(terminating=True), NOW) is Action.RELEASE


@pytest.mark.parametrize(
    "spec", [{"terminationGracePeriodSeconds": 0}, {"domain": {"features": {"acpi": {"enabled": False}}}}]
)
@pytest.mark.feature("VML-18")
def test_deletion_cuts_the_power_where_there_is_no_button_or_no_patience(spec: dict[str, Any]) -> None:
    vmi = instance("Running", leaving=True, **spec)
    assert decisions.next_action(vmi, seen(RUNNING), NOW) is Action.DESTROY


def test_launcher_may_end_once_the_outcome_is_written() -> None:
    ended = seen(DomainState("Shutoff", "Shutdown"))
    assert decisions.next_action(instance("Running"), ended, NOW) is Action.NOTHING
    assert decisions.next_action(instance("Succeeded"), ended, NOW) is Action.RELEASE


@pytest.mark.parametrize(
    ("domain", "phase"),
    [
        (RUNNING, "Running"),
        (DomainState("Paused", "Paused"), "Running"),
        (DomainState("Paused", "PostcopyFailed"), "Failed"),
        (DomainState("Shutoff", "Shutdown"), "Succeeded"),
        (DomainState("Shutoff", "Crashed"), "Failed"),
        (DomainState("Shutoff", "Failed"), "Failed"),
        (DomainState("Crashed", "Panicked"), "Failed"),
        (DomainState("Shutoff", "Destroyed"), "Failed"),
        (DomainState("Shutoff", "Migrated"), "Running"),
        (DomainState("Shutoff", "Saved"), "Succeeded"),
    ],
)
def test_phase_follows_the_domain(domain: DomainState, phase: str) -> None:
    assert decisions.next_phase(instance("Running"), seen(domain)) == phase


def test_destroyed_guest_without_grace_period_succeeded() -> None:
    vmi = instance("Running", terminationGracePeriodSeconds=0)
    assert decisions.next_phase(vmi, seen(DomainState("Shutoff", "Destroyed"))) == "Succeeded"


def test_lost_launcher_fails_the_instance() -> None:
    gone = seen(launcher_ready=False, launcher_gone=True)
    assert decisions.next_phase(instance("Scheduled"), gone) == "Failed"
    gone_running = seen(RUNNING, launcher_ready=False, launcher_gone=True)
    assert decisions.next_phase(instance("Running"), gone_running) == "Failed"


DOMAINS = st.one_of(
    st.none(),
    st.builds(
        DomainState,
        st.sampled_from(["Running", "Paused", "Shutoff", "Crashed", "Blocked"]),
        st.sampled_from(["", "Unknown", "Shutdown", "Destroyed", "Crashed", "Migrated", "Paused"]),
    ),
)


@given(
    phase=st.sampled_from(["Scheduled", "Running", "Succeeded", "Failed"]),
    leaving=st.booleans(),
    ready=st.booleans(),
    gone=st.booleans(),
    domain=DOMAINS,
)
def test_final_phases_never_change_and_no_guest_is_started_twice(
    phase: str, leaving: bool, ready: bool, gone: bool, domain: DomainState | None
) -> None:
    vmi = instance(phase, leaving=leaving)
    observation = seen(domain, launcher_ready=ready, launcher_gone=gone)
    if phase in decisions.FINAL_PHASES:
        assert decisions.next_phase(vmi, observation) == phase
    if decisions.next_action(vmi, observation, NOW) is Action.START:
        assert domain in (None, DomainState("Shutoff", "Unknown"))
        assert phase == "Scheduled"
        assert not leaving
        assert not gone


def test_pod_is_found_by_node() -> None:
    vmi = instance(status={"activePods": {"a": "node1", "b": "node2"}})
    assert decisions.pod_on_node(vmi, "node2") == "b"
    assert decisions.pod_on_node(vmi, "node3") == ""


@pytest.mark.feature("MIG-32", "STO-01", "STO-02", "VMC-51")
@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteMany"])
def test_unshared_claim_forbids_live_migration(mode: str) -> None:
    claim = {"claimName": "c", "accessModes": [mode]}
    vmi = instance(
        "Running",
        volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
        status={"volumeStatus": [{"name": "d", "target": "", "persistentVolumeClaimInfo": claim}]},
    )
    found = decisions.migratability(vmi, emulation=False)
    if mode == "ReadWriteMany":
        assert found.reason != "DisksNotLiveMigratable"
        return
    assert not found.possible
    assert found.reason == "DisksNotLiveMigratable"
    assert found.method == "LiveMigration"


def test_reservations_forbid_live_migration() -> None:
    disks = [{"name": "lun", "lun": {"bus": "scsi", "reservation": True}}]
    vmi = instance("Running", domain={"devices": {"disks": disks}})
    assert decisions.migratability(vmi, emulation=False).reason == "PersistentReservationNotLiveMigratable"


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"domain": {"devices": {}, "launchSecurity": {"sev": {}}}}, "SEVNotLiveMigratable", "VMI uses SEV"),
        ({"domain": {"devices": {}, "launchSecurity": {"snp": {}}}}, "SEVNotLiveMigratable", "VMI uses SEV"),
        ({"domain": {"devices": {}, "launchSecurity": {"tdx": {}}}}, "TDXNotLiveMigratable", "VMI uses TDX"),
        (
            {"architecture": "s390x", "domain": {"devices": {}, "launchSecurity": {}}},
            "SecureExecutionNotLiveMigratable",
            "VMI uses Secure Execution",
        ),
        (
            {"domain": {"devices": {}, "features": {"hyperv": {"reenlightenment": {}}}}},
            "NoTSCFrequencyNotLiveMigratable",
            "HyperV Reenlightenment VMIs cannot migrate when TSC Frequency is not exposed on the cluster:"
            " guest timers might be inconsistent",
        ),
        (
            {"domain": {"devices": {}, "features": {"hypervPassthrough": {"enabled": True}}}},
            "HypervPassthroughNotLiveMigratable",
            "VMI uses hyperv passthrough",
        ),
        (
            {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": "v/g"}]}}},
            "HostDeviceNotLiveMigratable",
            "VMI uses a PCI host devices",
        ),
    ],
)
def test_what_a_guest_has_of_its_node_keeps_it_there(spec: dict[str, Any], reason: str, message: str) -> None:
    found = decisions.migratability(instance("Running", **spec), emulation=False)
    assert (found.possible, found.reason, found.message) == (False, reason, message)
    assert [each.reason for each in found.obstacles] == [reason]


def test_a_clock_that_nodes_agree_on_does_not_keep_a_guest() -> None:
    features: dict[str, Any] = {"hyperv": {"reenlightenment": {}}}
    hints = {"topologyHints": {"tscFrequency": 2_000_000_000}}
    vmi = instance("Running", domain={"devices": {}, "features": features}, status=hints)
    assert decisions.migratability(vmi, emulation=False).obstacles == ()


def test_shared_folders_do_not_keep_a_guest() -> None:
    """KubeVirt still has the reason VirtIOFSNotLiveMigratable, and gives it no more."""
    devices = {"filesystems": [{"name": "shared", "virtiofs": {}}]}
    volumes = [{"name": "shared", "configMap": {"name": "c"}}]
    vmi = instance("Running", domain={"devices": devices}, volumes=volumes)
    assert decisions.migratability(vmi, emulation=False).obstacles == ()


def _on_pod_network(binding: str, **annotations: str) -> VirtualMachineInstance:
    devices = {"interfaces": [{"name": "default", binding: {}}]}
    networks = [{"name": "default", "pod": {}}]
    return instance("Running", annotations=annotations, domain={"devices": devices}, networks=networks)


@pytest.mark.feature("NET-10")
def test_a_guest_in_the_pods_place_cannot_move_unless_its_owner_says_it_may() -> None:
    found = decisions.migratability(_on_pod_network("bridge"), emulation=False)
    assert (found.possible, found.reason) == (False, "InterfaceNotLiveMigratable")
    assert found.message.startswith("cannot migrate VMI which does not use masquerade, bridge with")
    allowed = {"kubevirt.io/allow-pod-bridge-network-live-migration": ""}
    found = decisions.migratability(_on_pod_network("bridge", **allowed), emulation=False)
    assert found.reason != "InterfaceNotLiveMigratable"


@pytest.mark.feature("MIG-30", "NOD-03")
def test_no_guest_counts_as_migratable_while_nothing_can_move_it() -> None:
    found = decisions.migratability(_on_pod_network("masquerade"), emulation=False)
    assert (found.possible, found.reason) == (False, "NotMigratable")
    assert found.message == "cannot migrate VMI: this version has no live migration"
