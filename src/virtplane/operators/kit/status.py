"""The KubeVirt object's status: conditions, phase and versions, from what is observed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object, get_str
from virtplane.api import event_reasons as reasons

Stage = Literal["deploying", "updating", "ready", "deleting"]


@dataclass(frozen=True, slots=True)
class Version:
    """What is installed: version and registry of the images, and a digest of all parameters."""

    version: str
    registry: str
    deployment_id: str
    deployment_config: str


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
    """Whether the DaemonSet's pods are up to date and ready on all of its nodes."""
    if daemon_set is None:
        return False
    status = get_object(daemon_set, "status")
    if get_int(status, "observedGeneration") < get_int(daemon_set, "metadata", "generation"):
        return False
    wanted = get_int(status, "desiredNumberScheduled")
    return get_int(status, "numberReady") >= wanted and get_int(status, "updatedNumberScheduled") >= wanted


def registry_of(image: str) -> str:
    """The image's name up to its last slash; empty where there is none."""
    return image.rpartition("/")[0]


def next_status(current: JsonObject, stage: Stage, version: Version, generation: int, now: str) -> JsonObject:
    """The status that follows from `stage`. `now` is RFC 3339."""
    status = deep_copy(current)
    status["operatorVersion"] = version.version
    status["targetKubeVirtVersion"] = version.version
    status["targetKubeVirtRegistry"] = version.registry
    status["targetDeploymentID"] = version.deployment_id
    status["targetDeploymentConfig"] = version.deployment_config
    status["phase"] = _phase(get_str(current, "phase"), stage)
    conditions = [dict(condition) for condition in get_list(current, "conditions")]
    for type_, state, reason, message in _conditions(stage):
        conditions = with_condition(conditions, type_, state, reason, message, now)
    if stage == "ready":
        conditions = with_condition(
            conditions,
            reasons.CREATED,
            "True",
            reasons.ALL_RESOURCES_CREATED,
            "All resources were created.",
            now,
            keep_transition=False,
        )
        conditions = [condition for condition in conditions if condition.get("type") != reasons.SYNCHRONIZED]
        status["observedKubeVirtVersion"] = version.version
        status["observedKubeVirtRegistry"] = version.registry
        status["observedDeploymentID"] = version.deployment_id
        status["observedDeploymentConfig"] = version.deployment_config
        status["observedGeneration"] = generation
    status["conditions"] = conditions
    return status


def failed_status(current: JsonObject, reason: str, message: str, now: str) -> JsonObject:
    """The status after something could not be brought about."""
    status = deep_copy(current)
    conditions = [dict(condition) for condition in get_list(current, "conditions")]
    status["conditions"] = with_condition(conditions, reasons.SYNCHRONIZED, "False", reason, message, now)
    return status


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
    """The conditions with one set. Times change with the state; one without transitions has none at all."""
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


def _phase(current: str, stage: Stage) -> str:
    if stage == "deleting":
        return reasons.PHASE_DELETING
    if stage == "ready" or (stage == "updating" and current == reasons.PHASE_DEPLOYED):
        return reasons.PHASE_DEPLOYED
    return reasons.PHASE_DEPLOYING


def _conditions(stage: Stage) -> list[tuple[str, str, str, str]]:
    states, reason, message = {
        "deploying": (
            ("False", "True", "False"),
            reasons.DEPLOYMENT_IN_PROGRESS,
            "Deploying version and registry",
        ),
        "updating": (
            ("True", "True", "True"),
            reasons.UPDATE_IN_PROGRESS,
            "Transitioning from previous version or configuration",
        ),
        "ready": (("True", "False", "False"), reasons.ALL_COMPONENTS_READY, "All components are ready."),
        "deleting": (
            ("False", "False", "True"),
            reasons.DELETION_IN_PROGRESS,
            "Deletion was triggered",
        ),
    }[stage]
    types = (reasons.AVAILABLE, reasons.PROGRESSING, reasons.DEGRADED)
    return [(type_, state, reason, message) for type_, state in zip(types, states, strict=True)]
