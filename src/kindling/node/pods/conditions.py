"""The conditions of a pod's status; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kindling.node.pods.container import is_restartable
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.runtime_status import LocalState, PodRuntimeStatus
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_str

OWNED_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
DISRUPTION = "DisruptionTarget"
RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")
"""Conditions that a pod has only while they are true."""


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """What a status is made from."""

    observed: PodRuntimeStatus
    local: LocalState
    node: NodeFacts
    now: str
    """An RFC 3339 time."""
    ending: bool = False
    """The pod has been stopped for good."""
    reason: str = ""
    message: str = ""
    """Reason and message of an end that did not come from the containers."""
    disruption: str = ""
    """The message of the condition DisruptionTarget that the pod gets."""


def conditions(
    pod: JsonObject, phase: str, init: list[JsonObject], main: list[JsonObject], inputs: StatusInputs
) -> list[JsonObject]:
    """The pod's conditions, with those of others carried over. `init` and `main` are container statuses."""
    old = {get_str(item, "type"): item for item in get_list(pod, "status", "conditions")}
    generation = get_int(pod, "metadata", "generation", default=1)
    result = [
        _dated({"type": kind, "observedGeneration": generation, **condition}, old.get(kind), inputs.now)
        for kind, condition in _owned(pod, phase, init, main, inputs.observed).items()
    ]
    if inputs.disruption and DISRUPTION not in old:
        condition = _condition(True, "TerminationByKubelet", inputs.disruption)
        disruption = {"type": DISRUPTION, "observedGeneration": generation, **condition}
        result.append(_dated(disruption, None, inputs.now))
    for condition in inputs.local.resize_conditions:
        known = old.get(get_str(condition, "type"), {})
        since = get_str(known, "lastTransitionTime") or inputs.now
        result.append({**condition, "lastProbeTime": None, "lastTransitionTime": since})
    others = (*OWNED_CONDITIONS, *RESIZE_CONDITIONS)
    return result + [item for kind, item in old.items() if kind not in others]


def _owned(
    pod: JsonObject, phase: str, init: list[JsonObject], main: list[JsonObject], observed: PodRuntimeStatus
) -> dict[str, JsonObject]:
    """The conditions that every pod has, by type, in the order of OWNED_CONDITIONS."""
    network = observed.sandbox is not None and observed.sandbox.ready
    network = network and (bool(observed.ips) or get_bool(pod, "spec", "hostNetwork"))
    sidecars = [
        status
        for container, status in zip(get_list(pod, "spec", "initContainers"), init, strict=True)
        if is_restartable(container)
    ]
    containers_ready = _containers_ready(phase, sidecars + main)
    made = {
        "PodReadyToStartContainers": _condition(network),
        "Initialized": _initialized(pod, phase, init, main),
        "Ready": _ready(pod, containers_ready),
        "ContainersReady": containers_ready,
        "PodScheduled": _condition(True),
    }
    return {kind: made[kind] for kind in OWNED_CONDITIONS}


def _dated(condition: JsonObject, previous: JsonObject | None, now: str) -> JsonObject:
    """A condition with its times; it keeps its transition while its status stays."""
    since = now
    if previous is not None and previous.get("status") == condition["status"]:
        since = previous.get("lastTransitionTime") or now
    return {**condition, "lastProbeTime": None, "lastTransitionTime": since}


def _condition(value: bool, reason: str = "", message: str = "") -> JsonObject:
    condition: JsonObject = {"status": "True" if value else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _initialized(pod: JsonObject, phase: str, init: list[JsonObject], main: list[JsonObject]) -> JsonObject:
    if phase == "Succeeded":
        return _condition(True, "PodCompleted")
    begun = has_begun(main)
    incomplete = []
    for container, status in zip(get_list(pod, "spec", "initContainers"), init, strict=True):
        done = status["started"] if is_restartable(container) else status["ready"]
        if not done and not (is_restartable(container) and begun):
            incomplete.append(status["name"])
    if incomplete:
        message = f"containers with incomplete status: {_names(incomplete)}"
        return _condition(False, "ContainersNotInitialized", message)
    return _condition(True)


def has_begun(main: list[JsonObject]) -> bool:
    """Whether any container other than an init container has run."""
    return any("waiting" not in item["state"] or item["lastState"] for item in main)


def _containers_ready(phase: str, statuses: list[JsonObject]) -> JsonObject:
    if phase == "Succeeded":
        return _condition(False, "PodCompleted")
    if phase == "Failed":
        return _condition(False, "PodFailed")
    unready = [status["name"] for status in statuses if not status["ready"]]
    if unready:
        return _condition(False, "ContainersNotReady", f"containers with unready status: {_names(unready)}")
    return _condition(True)


def _ready(pod: JsonObject, containers: Mapping[str, Any]) -> JsonObject:
    if containers["status"] != "True":
        return dict(containers)
    messages = []
    for gate in get_list(pod, "spec", "readinessGates"):
        kind = get_str(gate, "conditionType")
        found = next((i for i in get_list(pod, "status", "conditions") if i.get("type") == kind), None)
        if found is None:
            messages.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found.get("status") != "True":
            messages.append(
                f'the status of pod readiness gate "{kind}" is not "True", but {get_str(found, "status")}'
            )
    if messages:
        return _condition(False, "ReadinessGatesNotReady", ", ".join(messages))
    return _condition(True)


def _names(names: Iterable[str]) -> str:
    return "[" + " ".join(names) + "]"
