"""The effective configuration."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from virtplane.api import feature_gates
from virtplane.api.config import ClusterConfig, effective


def kubevirt(phase: str = "Deployed", **configuration: object) -> JsonObject:
    return {
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": configuration},
        "status": {"phase": phase, "defaultArchitecture": "arm64"} if phase else {},
    }


def test_defaults_hold_without_an_object() -> None:
    config = ClusterConfig(None)
    assert config.machine_type("amd64") == "q35"
    assert config.cpu_allocation_ratio == 10
    assert config.live_update
    assert config.eviction_strategy == "None"


def test_objects_merge_and_lists_replace() -> None:
    config = ClusterConfig(
        kubevirt(
            migrations={"parallelMigrationsPerCluster": 9},
            architectureConfiguration={"amd64": {"emulatedMachines": ["pc*"]}},
        )
    )
    assert config.migrations["parallelMigrationsPerCluster"] == 9
    assert config.migrations["progressTimeout"] == 150
    assert config.emulated_machines("amd64") == ["pc*"]
    assert config.machine_type("amd64") == "q35"


def test_settings_do_not_count_before_the_object_has_a_phase() -> None:
    assert not ClusterConfig(kubevirt("", developerConfiguration={"useEmulation": True})).use_emulation
    assert ClusterConfig(kubevirt(developerConfiguration={"useEmulation": True})).use_emulation


def test_default_architecture_comes_from_the_status() -> None:
    config = ClusterConfig(kubevirt(architectureConfiguration={"defaultArchitecture": "s390x"}))
    assert config.default_architecture == "arm64"


def test_a_contradictory_configuration_leaves_the_last_good_one() -> None:
    good = effective(kubevirt(cpuModel="Haswell"))
    assert effective(kubevirt(imagePullPolicy="Sometimes"), good) is good


@pytest.mark.parametrize(
    ("gate", "enabled", "disabled", "expected"),
    [
        ("HostDisk", [], [], False),
        ("HostDisk", ["HostDisk"], [], True),
        ("Snapshot", [], [], True),
        ("Snapshot", [], ["Snapshot"], False),
        ("LiveMigration", [], ["LiveMigration"], True),
        ("NoSuchGate", ["NoSuchGate"], [], False),
    ],
)
def test_a_gate_is_on_by_its_state_and_the_lists(
    gate: str, enabled: list[str], disabled: list[str], expected: bool
) -> None:
    assert feature_gates.is_enabled(gate, enabled, disabled) is expected


def test_the_reservation_gate_counts_only_where_it_is_listed() -> None:
    assert not ClusterConfig(kubevirt()).persistent_reservation
    listed = kubevirt(developerConfiguration={"featureGates": ["PersistentReservation"]})
    assert ClusterConfig(listed).persistent_reservation
