"""A Deployment's status, and the progress of its rollout.

Pure functions over a Deployment and its ReplicaSets.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from kubecore.json import JsonObject, get_int, get_object
from kubecore.objects import meta
from kubecore.objects.times import format_time, parse_time

from .rollout import NO_DEADLINE, in_status, max_unavailable, replicas


def status(
    deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject], now: datetime
) -> JsonObject:
    """The status of the deployment, with all conditions but Progressing decided."""
    sets = [*old, *([new] if new else [])]
    available = in_status(sets, "availableReplicas")
    existing = in_status(sets, "replicas")
    result: JsonObject = {"observedGeneration": meta.generation(deployment)}
    updated = get_int(new, "status", "replicas") if new else 0
    for name, count in (
        ("replicas", existing),
        ("updatedReplicas", updated),
        ("readyReplicas", in_status(sets, "readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", max(0, existing - available)),
    ):
        if count:
            result[name] = count
    result["terminatingReplicas"] = in_status(sets, "terminatingReplicas")
    collisions = get_object(deployment, "status").get("collisionCount")
    if collisions is not None:
        result["collisionCount"] = collisions
    conditions = [dict(condition) for condition in meta.conditions(deployment)]
    if available >= replicas(deployment) - max_unavailable(deployment):
        minimum = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        minimum = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    set_condition(conditions, "Available", *minimum, now)
    failure = next(
        (found for found in (meta.get_condition(each, "ReplicaFailure") for each in reversed(sets)) if found),
        None,
    )
    if failure is None:
        meta.remove_condition(conditions, "ReplicaFailure")
    else:
        set_condition(
            conditions,
            "ReplicaFailure",
            failure["status"],
            failure.get("reason", ""),
            failure.get("message", ""),
            now,
        )
    result["conditions"] = conditions
    return result


def set_condition(
    conditions: list[JsonObject], type: str, status: str, reason: str, message: str, now: datetime
) -> None:
    """Set a condition; its times change only with its status or reason."""
    current = meta.find_condition(conditions, type)
    if current is not None and (current.get("status"), current.get("reason")) == (status, reason):
        return
    moment = format_time(now)
    transition = moment
    if current is not None and current.get("status") == status:
        transition = current.get("lastTransitionTime", moment)
    meta.remove_condition(conditions, type)
    conditions.append(
        {
            "type": type,
            "status": status,
            "lastUpdateTime": moment,
            "lastTransitionTime": transition,
            "reason": reason,
            "message": message,
        }
    )


def deadline_seconds(deployment: JsonObject) -> int | None:
    """The progress deadline; None where there is none."""
    seconds = get_object(deployment, "spec").get("progressDeadlineSeconds")
    return None if seconds is None or seconds == NO_DEADLINE else int(seconds)


def is_complete(deployment: JsonObject, result: JsonObject) -> bool:
    """Whether all pods are new and available, and no old one is left."""
    wanted = replicas(deployment)
    return (
        result.get("updatedReplicas", 0) == wanted
        and result.get("replicas", 0) == wanted
        and result.get("availableReplicas", 0) == wanted
        and get_int(result, "observedGeneration") >= meta.generation(deployment)
    )


def is_progressing(deployment: JsonObject, result: JsonObject) -> bool:
    """Whether the rollout progressed since the status was last written."""
    before = get_object(deployment, "status")

    def old_replicas(found: JsonObject) -> int:
        return int(found.get("replicas", 0)) - int(found.get("updatedReplicas", 0))

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_replicas(result) < old_replicas(before) or any(
        get_int(result, field) > get_int(before, field) for field in grown
    )


def has_timed_out(deployment: JsonObject, result: JsonObject, now: datetime) -> bool:
    """Whether the deadline passed without progress."""
    condition = meta.find_condition(result["conditions"], "Progressing")
    seconds = deadline_seconds(deployment)
    if condition is None or seconds is None or condition.get("reason") == "NewReplicaSetAvailable":
        return False
    if condition.get("reason") == "ProgressDeadlineExceeded":
        return True
    since = parse_time(condition["lastUpdateTime"])
    return since + timedelta(seconds=seconds) < now


def set_progress(deployment: JsonObject, new: JsonObject | None, result: JsonObject, now: datetime) -> None:
    """Decide the condition Progressing in `result`."""
    conditions: list[JsonObject] = result["conditions"]
    if deadline_seconds(deployment) is None:
        meta.remove_condition(conditions, "Progressing")
        return
    current = meta.find_condition(conditions, "Progressing")
    done = (
        result.get("replicas", 0) == result.get("updatedReplicas", 0)
        and current is not None
        and current.get("reason") == "NewReplicaSetAvailable"
    )
    if done:
        return
    subject = f'ReplicaSet "{meta.name(new)}"' if new else f'Deployment "{meta.name(deployment)}"'
    if is_complete(deployment, result):
        message = f"{subject} has successfully progressed."
        set_condition(conditions, "Progressing", "True", "NewReplicaSetAvailable", message, now)
    elif is_progressing(deployment, result):
        transition = current.get("lastTransitionTime") if current and current["status"] == "True" else None
        meta.remove_condition(conditions, "Progressing")
        message = f"{subject} is progressing."
        set_condition(conditions, "Progressing", "True", "ReplicaSetUpdated", message, now)
        if transition:
            conditions[-1]["lastTransitionTime"] = transition
    elif has_timed_out(deployment, result, now):
        message = f"{subject} has timed out progressing."
        set_condition(conditions, "Progressing", "False", "ProgressDeadlineExceeded", message, now)


def seconds_to_deadline(deployment: JsonObject, result: JsonObject, now: datetime) -> float | None:
    """Seconds until the progress deadline; None without one, or when the rollout is complete."""
    condition = meta.find_condition(result["conditions"], "Progressing")
    seconds = deadline_seconds(deployment)
    if seconds is None or condition is None or is_complete(deployment, result):
        return None
    if condition.get("reason") in ("ProgressDeadlineExceeded", "NewReplicaSetAvailable", "DeploymentPaused"):
        return None
    due = parse_time(condition["lastUpdateTime"]) + timedelta(seconds=seconds + 1)
    return max(1.0, (due - now).total_seconds())
