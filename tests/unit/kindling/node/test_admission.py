"""What a node refuses to run: pods for which it has no room or no free port of its own."""

from __future__ import annotations

from typing import Any

from kindling.node.pods.admission import refusal

ALLOCATABLE = {"cpu": "2", "memory": "1Gi", "pods": "3", "example.com/device": "0"}


def pod(*ports: dict[str, Any], **wanted: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a", "ports": list(ports), "resources": {"requests": wanted}}]}}


def reason(wanted: dict[str, Any], *others: dict[str, Any]) -> str:
    found = refusal(wanted, others, ALLOCATABLE)
    return found.reason if found else ""


def test_a_port_of_the_host_goes_to_one_pod() -> None:
    taken = pod({"hostPort": 80})
    assert reason(pod({"hostPort": 80, "protocol": "TCP"}), taken) == "NodePorts"
    assert reason(pod({"hostPort": 80, "hostIP": "10.0.0.1"}), taken) == "NodePorts"
    assert reason(pod({"hostPort": 80, "protocol": "UDP"}), taken) == ""
    assert reason(pod({"hostPort": 81}), taken) == ""
    assert reason(pod({"containerPort": 80}), taken) == ""
    first = pod({"hostPort": 80, "hostIP": "10.0.0.1"})
    assert reason(pod({"hostPort": 80, "hostIP": "10.0.0.2"}), first) == ""


def test_requests_of_all_pods_together_fit_into_what_is_allocatable() -> None:
    assert reason(pod(cpu="1500m"), pod(cpu="500m")) == ""
    assert reason(pod(cpu="1501m"), pod(cpu="500m")) == "OutOfcpu"
    assert reason(pod(memory="1Gi"), pod(memory="1Mi")) == "OutOfmemory"
    assert reason(pod(cpu="3")) == "OutOfcpu"
    assert reason(pod(), pod(cpu="2")) == ""


def test_the_amounts_are_told() -> None:
    found = refusal(pod(cpu="1501m"), [pod(cpu="500m")], ALLOCATABLE)
    assert found is not None
    told = "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000"
    assert (found.message, found.status_message) == (told, f"Pod was rejected: {told}")


def test_a_node_takes_so_many_pods() -> None:
    assert reason(pod(), pod(), pod()) == ""
    assert reason(pod(), pod(), pod(), pod()) == "OutOfpods"


def test_what_others_hand_out_or_nobody_knows_is_not_counted() -> None:
    assert reason(pod(**{"example.com/device": "1"})) == ""
    assert refusal(pod(cpu="64"), [], {}) is None
