"""Conditions and phase of the KubeVirt object."""

from __future__ import annotations

from virtplane.operators.kit.status import (
    Version,
    failed_status,
    is_daemon_set_ready,
    is_deployment_ready,
    next_status,
    registry_of,
    with_condition,
)

VERSION = Version("v1", "registry.test", "id", "{}")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def states(status: dict) -> dict[str, str]:  # type: ignore[type-arg]
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def test_a_new_installation_is_deploying() -> None:
    status = next_status({}, "deploying", VERSION, 1, NOW)
    assert status["phase"] == "Deploying"
    assert states(status) == {"Available": "False", "Progressing": "True", "Degraded": "False"}


def test_a_ready_installation_tells_what_is_observed() -> None:
    status = next_status(next_status({}, "deploying", VERSION, 1, NOW), "ready", VERSION, 3, LATER)
    assert status["phase"] == "Deployed"
    assert states(status) == {
        "Available": "True",
        "Progressing": "False",
        "Degraded": "False",
        "Created": "True",
    }
    assert status["observedGeneration"] == 3
    assert status["observedKubeVirtVersion"] == "v1"


def test_an_update_leaves_the_installation_available_and_deployed() -> None:
    ready = next_status({}, "ready", VERSION, 1, NOW)
    status = next_status(ready, "updating", VERSION, 2, LATER)
    assert status["phase"] == "Deployed"
    assert states(status) | {"Created": "True"} == {
        "Available": "True",
        "Progressing": "True",
        "Degraded": "True",
        "Created": "True",
    }


def test_nothing_changes_when_nothing_changed() -> None:
    ready = next_status({}, "ready", VERSION, 1, NOW)
    assert next_status(ready, "ready", VERSION, 1, LATER) == ready


def test_a_failure_shows_until_things_are_ready_again() -> None:
    failed = failed_status({"phase": "Deploying"}, "DeploymentFailed", "no", NOW)
    assert states(failed) == {"Synchronized": "False"}
    assert "Synchronized" not in states(next_status(failed, "ready", VERSION, 1, LATER))


def test_a_transition_time_changes_with_the_status_only() -> None:
    first = with_condition([], "Available", "True", "A", "a", NOW)
    second = with_condition(first, "Available", "True", "B", "b", LATER)
    assert second[0]["lastTransitionTime"] == NOW
    assert second[0]["lastProbeTime"] == LATER


def test_a_deployment_is_ready_when_all_its_pods_are_new_and_ready() -> None:
    deployment = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, "updatedReplicas": 2, "readyReplicas": 2},
    }
    assert is_deployment_ready(deployment)
    assert not is_deployment_ready({**deployment, "status": {"observedGeneration": 1}})
    assert not is_deployment_ready({**deployment, "status": {**deployment["status"], "replicas": 3}})
    assert not is_deployment_ready(None)


def test_a_daemon_set_without_nodes_is_ready_once_it_was_observed() -> None:
    assert not is_daemon_set_ready({"metadata": {"generation": 1}, "status": {}})
    assert is_daemon_set_ready({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}})


def test_a_registry_is_what_precedes_the_name() -> None:
    assert registry_of("registry.test/a/virtplane:1") == "registry.test/a"
    assert registry_of("virtplane") == ""
