"""Replica sets and migrations: their pure decisions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.replicaset import VirtualMachineInstanceReplicaSet
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.migrations_v1alpha1.policy import MigrationPolicy
from virtplane.compute.controller import pods
from virtplane.compute.controller.migration import backoff, phases, policies, updates
from virtplane.compute.controller.migration.phases import Around
from virtplane.compute.controller.replicaset import decisions as replicas


def _vmi(name: str, phase: str = "Running", **metadata: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, **metadata},
        "status": {"phase": phase},
    }


def _replica_set(**spec: Any) -> VirtualMachineInstanceReplicaSet:
    body = {"selector": {}, "template": {"spec": {"domain": {}}}, **spec}
    return decode(VirtualMachineInstanceReplicaSet, {"metadata": {"name": "rs"}, "spec": body})


def _instances(*found: JsonObject) -> list[VirtualMachineInstance]:
    return [decode(VirtualMachineInstance, vmi) for vmi in found]


@pytest.mark.feature("VML-80")
def test_a_replica_set_makes_what_is_missing_and_replaces_what_has_ended() -> None:
    step = replicas.next_step(_replica_set(replicas=3), _instances(_vmi("a"), _vmi("b", "Failed")))
    assert (step.create, [item.metadata.name for item in step.delete]) == (2, ["b"])


def test_a_replica_set_gives_up_guests_that_do_not_run_yet_first() -> None:
    step = replicas.next_step(_replica_set(replicas=1), _instances(_vmi("a"), _vmi("b", "Scheduling")))
    assert [item.metadata.name for item in step.delete] == ["b"]


def test_a_paused_replica_set_does_nothing() -> None:
    assert replicas.next_step(_replica_set(replicas=3, paused=True), []) == replicas.Step()


def test_an_instance_of_a_replica_set_is_the_template_as_it_was_written() -> None:
    template = {
        "metadata": {"generateName": "guest-", "labels": {"a": "b"}},
        "spec": {"domain": {"devices": {}, "later": 1}},
    }
    document: JsonObject = {"spec": {"selector": {}, "template": template}}
    made = replicas.new_instance(decode(VirtualMachineInstanceReplicaSet, document), document)
    assert made["spec"] == template["spec"]
    assert (made["metadata"]["generateName"], made["metadata"]["labels"]) == ("guest-", {"a": "b"})


def _migration(phase: str = "", **metadata: Any) -> JsonObject:
    finalizers = [phases.FINALIZER]
    status = {"phase": phase} if phase else {}
    return {"metadata": {"name": "mig", "uid": "m", "finalizers": finalizers, **metadata}, "status": status}


def _target(running: bool = False) -> JsonObject:
    state: JsonObject = {"running": {}} if running else {}
    status = {"phase": "Running", "containerStatuses": [{"name": "compute", "state": state}]}
    return {"metadata": {"name": "t"}, "status": status}


def _next(document: JsonObject, vmi: JsonObject, target: JsonObject | None) -> phases.Next:
    migration = decode(VirtualMachineInstanceMigration, document)
    return phases.next_state(migration, Around(decode(VirtualMachineInstance, vmi), target))


@pytest.mark.parametrize(
    ("phase", "state", "target", "expected"),
    [
        ("", {}, None, "Pending"),
        ("Pending", {}, None, "Pending"),
        ("Pending", {}, _target(), "Scheduling"),
        ("Scheduling", {}, _target(running=True), "Scheduled"),
        ("Scheduling", {}, None, "Failed"),
        ("Scheduled", {"migrationUid": "m", "targetNode": "n"}, _target(), "PreparingTarget"),
        ("PreparingTarget", {"migrationUid": "m", "targetNode": "n"}, _target(), "PreparingTarget"),
        ("TargetReady", {"migrationUid": "m", "startTimestamp": "x"}, _target(), "Running"),
        ("Running", {"migrationUid": "m", "completed": True}, _target(), "Succeeded"),
        ("Running", {"migrationUid": "m", "failed": True, "completed": True}, _target(), "Failed"),
        ("Running", {"migrationUid": "other"}, _target(), "Failed"),
        ("Running", {}, _target(), "Failed"),
    ],
)
@pytest.mark.feature("MIG-27")
def test_a_migration_goes_step_by_step(phase: str, state: JsonObject, target: Any, expected: str) -> None:
    vmi = _vmi("vmi")
    if state:
        vmi["status"]["migrationState"] = state
    assert _next(_migration(phase), vmi, target).status["phase"] == expected


def test_a_finished_migration_lets_go_of_its_object() -> None:
    vmi = _vmi("vmi")
    vmi["status"]["migrationState"] = {"migrationUid": "m", "completed": True}
    result = _next(_migration("Running"), vmi, _target())
    assert result.is_released
    assert result.status["migrationState"]["completed"] is True
    assert result.event == ("Normal", "SuccessfulMigration", "Source node reported migration succeeded")


def _policy(name: str, vmi: JsonObject, namespace: JsonObject, **spec: Any) -> MigrationPolicy:
    selectors = {"virtualMachineInstanceSelector": vmi, "namespaceSelector": namespace}
    return decode(MigrationPolicy, {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}})


def _chosen(found: list[MigrationPolicy], vmi: JsonObject, namespace: JsonObject) -> str:
    policy = policies.matching_policy(found, vmi, namespace)
    return policy.metadata.name if policy is not None else ""


def test_the_policy_that_names_most_wins_and_overrides_the_installation() -> None:
    found = [
        _policy("a", {"x": "1"}, {}),
        _policy("b", {"x": "1", "y": "2"}, {}, allowPostCopy=True),
        _policy("c", {"x": "1", "z": "3"}, {}),
    ]
    assert _chosen(found, {"x": "1", "y": "2"}, {}) == "b"
    settings = policies.configuration(ClusterConfig(None), found[1])
    assert settings["allowPostCopy"] and settings["allowWorkloadDisruption"]
    assert settings["bandwidthPerMigration"] == "0"


@pytest.mark.feature("MIG-20", "MIG-21", "MIG-22", "MIG-23")
def test_a_policy_fits_when_all_its_labels_do() -> None:
    policy = _policy(
        "p", {"kubevirt.io/size": "large", "kubevirt.io/environment": "production"}, {"hpc": "True"}
    )
    full = {"kubevirt.io/size": "large", "kubevirt.io/environment": "production", "other": "x"}
    assert _chosen([policy], full, {"hpc": "True"}) == "p"
    assert _chosen([policy], {"kubevirt.io/size": "large"}, {"hpc": "True"}) == ""
    assert _chosen([policy], full, {}) == ""
    assert _chosen([policy], full, {"hpc": "False"}) == ""


def test_a_policy_without_selectors_fits_nothing_and_an_empty_selector_everything() -> None:
    selecting = _policy("b", {}, {})
    unselecting = decode(MigrationPolicy, {"metadata": {"name": "a"}, "spec": {"selectors": {}}})
    assert _chosen([unselecting], {"x": "1"}, {}) == ""
    assert _chosen([unselecting, selecting], {"x": "1"}, {}) == "b"


@pytest.mark.feature("MIG-26")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowAutoConverge", True),
        ("allowPostCopy", True),
        ("bandwidthPerMigration", "64Mi"),
        ("completionTimeoutPerGiB", 800),
    ],
)
def test_a_policy_changes_the_settings_of_its_migrations(field: str, value: object) -> None:
    settings = policies.configuration(ClusterConfig(None), _policy("p", {}, {}, **{field: value}))
    assert settings[field] == value
    assert policies.configuration(ClusterConfig(None), None)[field] != value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("parallelMigrationsPerCluster", 5, marks=pytest.mark.feature("MIG-06")),
        pytest.param("parallelOutboundMigrationsPerNode", 2, marks=pytest.mark.feature("MIG-07")),
        ("progressTimeout", 150),
        ("completionTimeoutPerGiB", 150),
        ("allowPostCopy", False),
        ("allowAutoConverge", False),
        ("bandwidthPerMigration", "0"),
    ],
)
def test_migrations_have_defaults_that_the_installation_changes(key: str, value: object) -> None:
    assert policies.configuration(ClusterConfig(None), None)[key] == value


def test_a_guest_whose_change_is_pending_is_moved_and_one_of_an_old_launcher_too() -> None:
    document = _vmi("a")
    document["status"]["conditions"] = [{"type": "HotVCPUChange", "status": "True"}]
    assert not updates.needs_migration(decode(VirtualMachineInstance, document)), "its pod may be resized"
    document["status"]["conditions"][0]["reason"] = "PodResizeDeferred"
    changed = decode(VirtualMachineInstance, document)
    assert updates.needs_migration(changed)
    assert updates.update_migration(changed)["spec"]["priority"] == "user-triggered"
    document = _vmi("b")
    document["status"]["launcherContainerImageVersion"] = "i:1"
    old = decode(VirtualMachineInstance, document)
    assert not updates.needs_migration(old)
    assert pods.is_outdated(old, "i:2") and not pods.is_outdated(old, "i:1")
    assert updates.update_migration(old)["spec"]["priority"] == "system-critical"


@pytest.mark.feature("INS-134")
def test_automatic_migrations_wait_longer_after_each_failure() -> None:
    def failed(moment: str) -> VirtualMachineInstanceMigration:
        annotations = {"kubevirt.io/evacuationMigration": "node"}
        transitions = [{"phase": "Failed", "phaseTransitionTimestamp": moment}]
        status = {"phase": "Failed", "phaseTransitionTimestamps": transitions}
        metadata = {"creationTimestamp": moment, "annotations": annotations}
        return decode(VirtualMachineInstanceMigration, {"metadata": metadata, "status": status})

    now = datetime(2026, 1, 1, 0, 1, 10, tzinfo=UTC)
    once = [failed("2026-01-01T00:01:00Z")]
    assert backoff.remaining_seconds(once, now) == 10
    assert backoff.remaining_seconds([failed("2026-01-01T00:00:00Z"), *once], now) == 30
    assert backoff.remaining_seconds([], now) == 0
