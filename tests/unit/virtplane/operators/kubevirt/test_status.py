"""Conditions and phase of the KubeVirt object."""

from __future__ import annotations

import pytest

from kubecore import resources
from virtplane.operators.kubevirt.status import Version, failed_status, generations, next_status, waiting

VERSION = Version("v1", "registry.test", "id", "{}", operator="v0")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def states(status: dict[str, list[dict[str, str]]]) -> dict[str, str]:
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


def test_the_generations_of_what_is_installed_are_told() -> None:
    budget = {"metadata": {"name": "virt-api-pdb", "namespace": "kubevirt", "generation": 2}}
    definition = {"metadata": {"name": "virtualmachines.kubevirt.io", "generation": 1}}
    told = generations(
        [
            (resources.POD_DISRUPTION_BUDGETS, [budget]),
            (resources.CUSTOM_RESOURCE_DEFINITIONS, [definition]),
            (resources.SERVICES, [{"metadata": {"name": "virt-api"}}]),
        ]
    )
    assert told == [
        {
            "group": "apiextensions.k8s.io/v1",
            "resource": "customresourcedefinitions",
            "name": "virtualmachines.kubevirt.io",
            "lastGeneration": 1,
            "hash": "",
        },
        {
            "group": "apps",
            "resource": "poddisruptionbudgets",
            "namespace": "kubevirt",
            "name": "virt-api-pdb",
            "lastGeneration": 2,
            "hash": "",
        },
    ]


@pytest.mark.feature("NEW-15")
def test_what_a_removal_waits_for_is_in_upstreams_conditions() -> None:
    left = "objects of users are being deleted: virtualmachines ns/vm"
    deleting = next_status({}, "deleting", VERSION, 1, NOW)
    told = waiting(deleting, left, NOW)
    changed = {each["type"]: (each["reason"], each["message"]) for each in told["conditions"]}
    assert changed["Progressing"] == ("DeletionInProgress", f"Deletion was triggered: {left}")
    assert {**told, "conditions": 0} == {**deleting, "conditions": 0}
    # Telling it again, with the same words, writes nothing.
    assert waiting(told, left, NOW) == told
