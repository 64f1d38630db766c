"""Phase and conditions of an operator's custom resource."""

from __future__ import annotations

import pytest

from virtplane.operators.kit.status import (
    Stage,
    StageText,
    is_daemon_set_ready,
    is_deployment_ready,
    next_phase,
    registry_of,
    stage_conditions,
    with_condition,
)

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


@pytest.mark.parametrize(
    ("stage", "current", "phase"),
    [
        ("deploying", "", "Deploying"),
        ("ready", "Deploying", "Deployed"),
        ("updating", "Deployed", "Deployed"),
        ("updating", "Deploying", "Deploying"),
        ("deleting", "Deployed", "Deleting"),
    ],
)
def test_an_update_leaves_a_product_deployed(stage: Stage, current: str, phase: str) -> None:
    assert next_phase(current, stage) == phase


def test_a_stage_sets_three_conditions_in_the_words_of_the_product() -> None:
    theirs = {"type": "Tasty", "status": "True"}
    found = stage_conditions([theirs], "updating", StageText("Kneading", "The dough is kneaded."), NOW)
    assert found[0] == theirs
    assert {(item["type"], item["status"]) for item in found[1:]} == {
        ("Available", "True"),
        ("Progressing", "True"),
        ("Degraded", "True"),
    }
    assert {(item["reason"], item["message"]) for item in found[1:]} == {
        ("Kneading", "The dough is kneaded.")
    }


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
