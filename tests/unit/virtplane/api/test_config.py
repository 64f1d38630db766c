"""The effective configuration."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from virtplane.api import feature_gates
from virtplane.api.config import ClusterConfig, LastGood, observed_version


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
    assert config.parallel_migrations == 9
    assert config.configuration.migrations.progress_timeout == 150
    assert config.emulated_machines("amd64") == ["pc*"]
    assert config.machine_type("amd64") == "q35"


def test_settings_do_not_count_before_the_object_has_a_phase() -> None:
    assert not ClusterConfig(kubevirt("", developerConfiguration={"useEmulation": True})).use_emulation
    assert ClusterConfig(kubevirt(developerConfiguration={"useEmulation": True})).use_emulation


def test_default_architecture_comes_from_the_status() -> None:
    config = ClusterConfig(kubevirt(architectureConfiguration={"defaultArchitecture": "s390x"}))
    assert config.default_architecture == "arm64"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"imagePullPolicy": "Sometimes"}, "invalid imagePullPolicy 'Sometimes'"),
        (
            {"developerConfiguration": {"cpuAllocationRatio": "many"}},
            "developerConfiguration.cpuAllocationRatio",
        ),
    ],
    ids=["contradictory", "unfit"],
)
def test_a_configuration_that_cannot_be_used_leaves_the_last_good_one(
    wrong: JsonObject, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LastGood()
    good = settings.of(kubevirt(cpuModel="Haswell"))
    for _ in range(2):
        assert settings.of(kubevirt(**wrong)) is good
    (record,) = caplog.records
    assert told in record.__dict__["err"]
    assert settings.of(kubevirt(cpuModel="Penryn")).cpu_model == "Penryn"


def test_an_object_is_read_once() -> None:
    settings, installed = LastGood(), kubevirt(cpuModel="Haswell")
    assert settings.of(installed) is settings.of(installed)


def test_no_obsolete_cpu_models_are_not_the_built_in_ones() -> None:
    assert ClusterConfig(kubevirt()).obsolete_cpu_models is None
    assert ClusterConfig(kubevirt(obsoleteCPUModels={})).obsolete_cpu_models == {}


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


def test_a_component_tells_which_kubevirt_it_has_read() -> None:
    assert observed_version({"metadata": {"resourceVersion": "41"}}) == "41"
    assert observed_version(None) == "0"
