"""The status of an operator's custom resource: phase and conditions, from what is observed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kubecore.json import JsonObject, get_int, get_object

Stage = Literal["deploying", "updating", "ready", "deleting"]

DEPLOYING = "Deploying"
DEPLOYED = "Deployed"
DELETING = "Deleting"
"""Phases."""

AVAILABLE = "Available"
PROGRESSING = "Progressing"
DEGRADED = "Degraded"
"""Conditions."""
_STATES: Mapping[Stage, tuple[str, str, str]] = {
    "deploying": ("False", "True", "False"),
    "updating": ("True", "True", "True"),
    "ready": ("True", "False", "False"),
    "deleting": ("False", "False", "True"),
}
"""Available, progressing, degraded."""


@dataclass(frozen=True, slots=True)
class StageText:
    """The texts of a stage in a product's conditions."""

    reason: str
    message: str


def is_deployment_ready(deployment: JsonObject | None) -> bool:
    """Whether all pods of a Deployment are up to date and ready, and none of a former template is left."""
    if deployment is None:
        return False
    status = get_object(deployment, "status")
    wanted = get_int(deployment, "spec", "replicas", default=1)
    return (
        get_int(status, "observedGeneration") >= get_int(deployment, "metadata", "generation")
        and get_int(status, "updatedReplicas") >= max(wanted, get_int(status, "replicas"))
        and get_int(status, "readyReplicas") >= wanted
    )


def is_daemon_set_ready(daemon_set: JsonObject | None) -> bool:
    """Whether the DaemonSet's pods are updated and ready on all of its nodes."""
    if daemon_set is None:
        return False
    status = get_object(daemon_set, "status")
    if get_int(status, "observedGeneration") < get_int(daemon_set, "metadata", "generation"):
        return False
    wanted = get_int(status, "desiredNumberScheduled")
    return get_int(status, "numberReady") >= wanted and get_int(status, "updatedNumberScheduled") >= wanted


def registry_of(image: str) -> str:
    """The registry of an image: its name up to the last slash; empty if there is none."""
    return image.rpartition("/")[0]


def next_phase(current: str, stage: Stage) -> str:
    """``status.phase``; it stays Deployed during an update."""
    if stage == "deleting":
        return DELETING
    if stage == "ready" or (stage == "updating" and current == DEPLOYED):
        return DEPLOYED
    return DEPLOYING


def stage_conditions(
    conditions: Sequence[JsonObject], stage: Stage, text: StageText, now: str
) -> list[JsonObject]:
    """The conditions with the three set that every operator reports. `now` is RFC 3339."""
    result = list(conditions)
    for type_, state in zip((AVAILABLE, PROGRESSING, DEGRADED), _STATES[stage], strict=True):
        result = with_condition(result, type_, state, text.reason, text.message, now)
    return result


def with_condition(
    conditions: Sequence[JsonObject],
    type_: str,
    state: str,
    reason: str,
    message: str,
    now: str,
    *,
    keep_transition: bool = True,
) -> list[JsonObject]:
    """The conditions with one set. Times change with the status; a condition without transitions has none."""
    wanted: JsonObject = {"type": type_, "status": state, "reason": reason, "message": message}
    result = [dict(condition) for condition in conditions]
    for condition in result:
        if condition.get("type") != type_:
            continue
        if all(condition.get(key) == value for key, value in wanted.items()):
            return result
        if condition.get("status") != state:
            condition["lastTransitionTime"] = now if keep_transition else None
        condition.update(wanted, lastProbeTime=now)
        return result
    result.append({**wanted, "lastProbeTime": now, "lastTransitionTime": now if keep_transition else None})
    return result
