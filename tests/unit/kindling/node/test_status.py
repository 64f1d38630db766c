"""Statuses of pods, field by field as a kubelet reports them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kindling.node.pods.conditions import StatusInputs
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.runtime_status import LocalState, PodRuntimeStatus, ProbeResult, ProbeResults, Waiting
from kindling.node.pods.status import pod_status
from kindling.node.pods.status_manager import status_patch
from kindling.node.runtime.interface import Container, ContainerState, Sandbox

NOW = "2026-01-01T00:00:00Z"
NODE = NodeFacts("node01", ("10.64.0.11",), {})
SANDBOX = Sandbox("s1", "p", "ns", "u", 0, True, 1, ips=("10.64.1.2",))
RUNNING, EXITED = ContainerState.RUNNING, ContainerState.EXITED


def pod(policy: str = "Always", *, init: bool = False, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "generation": 1},
        "spec": {"restartPolicy": policy, "containers": [{"name": "a", "image": "img"}], **spec},
    }
    if init:
        made["spec"]["initContainers"] = [{"name": "i", "image": "img"}]
    return made


def container(state: ContainerState, code: int = 0, name: str = "a", restarts: int = 0) -> Container:
    return Container(
        f"{name}{restarts}",
        "s1",
        name,
        restarts,
        state,
        restarts + 1,
        started_at=1_000_000_000,
        finished_at=2_000_000_000 if state is EXITED else 0,
        exit_code=code,
        image_ref="sha256:1",
    )


def status(spec: dict[str, Any], *containers: Container, ready: bool = True, **inputs: Any) -> dict[str, Any]:
    groups: dict[str, tuple[Container, ...]] = {}
    for item in containers:
        groups[item.name] = (*groups.get(item.name, ()), item)
    observed = PodRuntimeStatus((SANDBOX,) if ready else (), groups)
    local = inputs.pop("local", LocalState())
    return pod_status(spec, StatusInputs(observed, local, NODE, NOW, **inputs))


def conditions(document: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {item["type"]: (item["status"], item.get("reason")) for item in document["conditions"]}


def test_a_pod_without_containers_yet_is_pending() -> None:
    document = status(pod(), ready=False)
    assert document["phase"] == "Pending"
    assert document["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(document)["PodReadyToStartContainers"] == ("False", None)
    assert conditions(document)["Ready"] == ("False", "ContainersNotReady")


def test_a_running_pod_is_ready_and_has_addresses() -> None:
    document = status(pod(), container(RUNNING))
    assert document["phase"] == "Running"
    assert document["podIPs"] == [{"ip": "10.64.1.2"}]
    assert document["hostIP"] == "10.64.0.11"
    assert document["containerStatuses"][0]["state"] == {"running": {"startedAt": "1970-01-01T00:00:01Z"}}
    assert set(conditions(document).values()) == {("True", None)}
    assert document["qosClass"] == "BestEffort"


@pytest.mark.parametrize(("count", "kept"), [(1, 4096), (3, 4096), (4, 3072), (100, 122)])
def test_messages_of_all_containers_of_a_pod_have_twelve_kibibytes_together(count: int, kept: int) -> None:
    names = [f"c{index}" for index in range(count)]
    spec = pod("Always", init=True, containers=[{"name": name, "image": "img"} for name in names[1:]])
    spec["spec"]["initContainers"][0]["name"] = names[0]
    message = "x" * 4096
    ended = [
        replace(container(EXITED, 1, name, restarts), message=message)
        for name in names
        for restarts in (1, 0)
    ]
    document = status(spec, *ended)
    found = document["initContainerStatuses"] + document.get("containerStatuses", [])
    assert len(found) == count
    for each in found:
        assert each["state"]["terminated"]["message"] == "x" * kept
        assert each["lastState"]["terminated"]["message"] == "x" * kept


def test_a_message_is_not_cut_within_a_character() -> None:
    spec = pod(containers=[{"name": f"c{index}", "image": "img"} for index in range(4)])
    ended = replace(container(EXITED, 1, "c0"), message="x" + "\u00fc" * 2000)
    message = status(spec, ended)["containerStatuses"][0]["state"]["terminated"]["message"]
    assert message == "x" + "\u00fc" * 1535


def test_a_succeeded_pod_says_completed_everywhere() -> None:
    document = status(pod("Never"), container(EXITED), ready=False, ending=True)
    assert document["phase"] == "Succeeded"
    assert conditions(document)["Ready"] == ("False", "PodCompleted")
    assert conditions(document)["Initialized"] == ("True", "PodCompleted")
    terminated = document["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    assert "resources" not in document


def test_a_failing_container_is_waiting_with_its_last_state_while_backed_off() -> None:
    local = LocalState(waiting={"a": Waiting("CrashLoopBackOff", "back-off 10s")})
    document = status(pod(), container(EXITED, 1, restarts=1), container(EXITED, 2), local=local)
    entry = document["containerStatuses"][0]
    assert document["phase"] == "Running"
    assert entry["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert entry["lastState"]["terminated"]["exitCode"] == 1
    assert entry["restartCount"] == 1


def test_an_unfinished_init_container_keeps_the_pod_pending() -> None:
    document = status(pod(init=True), container(RUNNING, name="i"))
    assert document["phase"] == "Pending"
    found = next(item for item in document["conditions"] if item["type"] == "Initialized")
    assert found["reason"] == "ContainersNotInitialized"
    assert found["message"] == "containers with incomplete status: [i]"
    assert document["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_failed_init_container_fails_a_pod_that_never_restarts() -> None:
    found = status(pod("Never", init=True), container(EXITED, 1, name="i"), ready=False)
    assert found["phase"] == "Failed"


def test_a_pod_is_over_only_when_its_sandbox_is_stopped() -> None:
    running = pod("Never") | {"status": {"phase": "Running"}}
    document = status(running, container(EXITED, 0))
    assert document["phase"] == "Running"
    assert conditions(document)["Ready"] == ("False", "PodCompleted")
    document = status(running, container(EXITED, 0), ready=False)
    assert document["phase"] == "Succeeded"
    assert conditions(document)["PodReadyToStartContainers"] == ("False", None)


@pytest.mark.feature("MON-39")
def test_readiness_follows_the_probe_and_the_gates() -> None:
    local = LocalState(probe_results={"a0": ProbeResults(readiness=ProbeResult.FAILURE)})
    document = status(pod(), container(RUNNING), local=local)
    assert conditions(document)["ContainersReady"] == ("False", "ContainersNotReady")
    gated = status(pod(readinessGates=[{"conditionType": "x/y"}]), container(RUNNING))
    assert conditions(gated)["Ready"] == ("False", "ReadinessGatesNotReady")
    assert conditions(gated)["ContainersReady"] == ("True", None)


def test_conditions_of_others_and_transition_times_are_carried_over() -> None:
    spec = pod()
    spec["status"] = {
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            {"type": "x/y", "status": "True"},
        ]
    }
    document = status(spec, container(RUNNING))
    ready = next(item for item in document["conditions"] if item["type"] == "Ready")
    assert ready["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert document["conditions"][-1] == {"type": "x/y", "status": "True"}


def test_an_evicted_pod_is_failed_with_the_reason() -> None:
    document = status(pod(), container(EXITED, 137), ending=True, reason="Evicted", message="low disk")
    assert (document["phase"], document["reason"], document["message"]) == ("Failed", "Evicted", "low disk")


def test_an_evicted_pod_is_the_target_of_a_disruption() -> None:
    document = status(
        pod(), container(EXITED, 137), reason="Evicted", message="low", disruption="low", ending=True
    )
    assert conditions(document)["DisruptionTarget"] == ("True", "TerminationByKubelet")
    target = next(each for each in document["conditions"] if each["type"] == "DisruptionTarget")
    assert status_patch({}, document)["conditions"][-1] == target
    assert "DisruptionTarget" not in conditions(status(pod(), container(EXITED, 137), ending=True))


def test_ephemeral_containers_have_a_status_of_their_own() -> None:
    spec = pod(ephemeralContainers=[{"name": "debug", "image": "tools"}])
    waiting = status(spec, container(RUNNING))["ephemeralContainerStatuses"][0]
    assert waiting["state"] == {"waiting": {"reason": "ContainerCreating"}}
    running = status(spec, container(RUNNING), container(RUNNING, name="debug"))
    debug = running["ephemeralContainerStatuses"][0]
    assert "running" in debug["state"] and debug["ready"] is False and "started" not in debug
    assert conditions(running)["Ready"][0] == "True"
    ended = status(spec, container(RUNNING), container(EXITED, 3, name="debug"))
    assert ended["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert ended["phase"] == "Running"


def test_the_patch_contains_only_what_changed() -> None:
    before = status(pod(), container(RUNNING))
    assert status_patch(before, status(pod(), container(RUNNING))) == {}
    local = LocalState(probe_results={"a0": ProbeResults(readiness=ProbeResult.FAILURE)})
    patch = status_patch(before, status(pod(), container(RUNNING), local=local))
    assert sorted(patch) == ["conditions", "containerStatuses"]
    assert [item["type"] for item in patch["conditions"]] == ["Ready", "ContainersReady"]
