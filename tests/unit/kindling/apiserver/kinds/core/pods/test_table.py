"""How pods print."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kindling.apiserver.kinds.conftest import Kinds

from kubecore.json import JsonObject

SPEC = {"containers": [{"name": "a", "image": "a:1"}], "nodeName": "n"}


def status(
    kinds: Kinds, state: JsonObject, spec: JsonObject | None = None, **metadata: Any
) -> tuple[str, str, str]:
    row = kinds.row("pods", {"metadata": {"name": "x", **metadata}, "spec": spec or SPEC, "status": state})
    return row[1], row[2], row[3]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"phase": "Pending"}, ("0/1", "Pending", "0")),
        (
            {
                "phase": "Running",
                "containerStatuses": [{"name": "a", "ready": True, "state": {"running": {}}}],
            },
            ("1/1", "Running", "0"),
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "a", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ],
            },
            ("0/1", "CrashLoopBackOff", "4"),
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"signal": 9}}}]},
            ("0/1", "Signal:9", "0"),
        ),
        (
            {
                "phase": "Failed",
                "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 3}}}],
            },
            ("0/1", "ExitCode:3", "0"),
        ),
        ({"phase": "Failed", "reason": "Evicted"}, ("0/1", "Evicted", "0")),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            ("0/1", "SchedulingGated", "0"),
        ),
    ],
)
def test_the_status_sums_up_phase_and_containers(
    kinds: Kinds, state: JsonObject, expected: tuple[str, str, str]
) -> None:
    assert status(kinds, state) == expected


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        ({"state": {"running": {}}}, "Init:0/2"),
        ({"state": {"terminated": {"exitCode": 0}}}, "Init:1/2"),
        ({"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}, "Init:Error"),
        ({"state": {"terminated": {"exitCode": 1}}}, "Init:ExitCode:1"),
        ({"state": {"waiting": {"reason": "ErrImagePull"}}}, "Init:ErrImagePull"),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, "Init:0/2"),
    ],
)
def test_init_containers_show_their_progress(kinds: Kinds, first: JsonObject, shown: str) -> None:
    spec = {**SPEC, "initContainers": [{"name": "one", "image": "a:1"}, {"name": "two", "image": "a:1"}]}
    states = [{"name": "one", **first}, {"name": "two", "state": {"waiting": {"reason": "PodInitializing"}}}]
    assert status(kinds, {"phase": "Pending", "initContainerStatuses": states}, spec)[1] == shown


def test_sidecars_count_as_containers(kinds: Kinds) -> None:
    spec = {**SPEC, "initContainers": [{"name": "side", "image": "a:1", "restartPolicy": "Always"}]}
    state = {
        "phase": "Running",
        "initContainerStatuses": [{"name": "side", "started": True, "ready": True, "state": {"running": {}}}],
        "containerStatuses": [{"name": "a", "ready": True, "state": {"running": {}}}],
    }
    assert status(kinds, state, spec)[:2] == ("2/2", "Running")


def test_a_dying_pod_is_terminating(kinds: Kinds) -> None:
    found = status(kinds, {"phase": "Running"}, deletionTimestamp="2024-01-01T00:00:00Z")
    assert found[1] == "Terminating"
    done = status(kinds, {"phase": "Succeeded"}, deletionTimestamp="2024-01-01T00:00:00Z")
    assert done[1] == "Succeeded"


def test_the_last_restart_is_dated(kinds: Kinds) -> None:
    last = {"terminated": {"finishedAt": "2024-01-01T00:00:00Z"}}
    container = {"name": "a", "ready": True, "restartCount": 2, "state": {"running": {}}, "lastState": last}
    text = status(kinds, {"phase": "Running", "containerStatuses": [container]})[2]
    assert text.startswith("2 (")
    assert text.endswith(" ago)")


def test_wide_columns_tell_address_node_and_gates(kinds: Kinds) -> None:
    spec = {**SPEC, "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    state = {"podIPs": [{"ip": "10.1.0.9"}], "conditions": [{"type": "a", "status": "True"}]}
    assert kinds.row("pods", {"spec": spec, "status": state})[5:] == ["10.1.0.9", "n", "<none>", "1/2"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_are_marked_for_clients_that_hide_them(kinds: Kinds, phase: str) -> None:
    table = kinds.table("pods")
    (condition,) = table.conditions({"metadata": {}, "status": {"phase": phase}})
    assert (condition["type"], condition["reason"]) == ("Completed", phase)
