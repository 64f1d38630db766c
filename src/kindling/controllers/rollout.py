"""How many replicas each ReplicaSet of a Deployment should have, and what the Deployment's status says.

Pure functions over a Deployment and its ReplicaSets.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from kubecore.json import JsonObject, deep_copy, get_int, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import format_time, parse_time

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
NO_DEADLINE = 2**31 - 1
"""``progressDeadlineSeconds`` of this size means none."""

_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        REVISION_HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
    }
)


def replicas(obj: JsonObject) -> int:
    """``spec.replicas`` (1 where absent)."""
    return get_int(obj, "spec", "replicas", default=1)


def total(sets: Sequence[JsonObject]) -> int:
    """The sum of wanted replicas."""
    return sum(replicas(found) for found in sets)


def in_status(sets: Sequence[JsonObject], field: str) -> int:
    """The sum of a number in the sets' statuses."""
    return sum(get_int(found, "status", field) for found in sets)


def is_recreate(deployment: JsonObject) -> bool:
    """Whether old pods go before new ones come."""
    return get_str(deployment, "spec", "strategy", "type") == "Recreate"


def scaled(value: object, whole: int, *, round_up: bool) -> int:
    """An int-or-percent value as a number of `whole`."""
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * whole
        return -(-part // 100) if round_up else part // 100
    return int(value) if isinstance(value, int) else 0


def surge_and_unavailable(deployment: JsonObject) -> tuple[int, int]:
    """How many pods above and below the wanted number a rolling update may have."""
    rolling = get_object(deployment, "spec", "strategy", "rollingUpdate")
    wanted = replicas(deployment)
    surge = scaled(rolling.get("maxSurge"), wanted, round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable"), wanted, round_up=False)
    # Both may round to zero, and nothing could ever move.
    return surge, unavailable if surge or unavailable else 1


def max_surge(deployment: JsonObject) -> int:
    """Pods above the wanted number; none when recreating."""
    return 0 if is_recreate(deployment) else surge_and_unavailable(deployment)[0]


def max_unavailable(deployment: JsonObject) -> int:
    """Pods below the wanted number; never more than there are."""
    wanted = replicas(deployment)
    if is_recreate(deployment) or wanted == 0:
        return 0
    return min(surge_and_unavailable(deployment)[1], wanted)


def by_age(sets: Sequence[JsonObject]) -> list[JsonObject]:
    """Oldest first."""
    return sorted(sets, key=lambda found: (meta.creation_timestamp(found), meta.name(found)))


def same_template(deployment: JsonObject, replica_set: JsonObject) -> bool:
    """Whether the set was made from the deployment's present template."""
    template = deep_copy(get_object(replica_set, "spec", "template"))
    get_object(template, "metadata", "labels").pop(HASH_LABEL, None)
    return _without_nothing(template) == _without_nothing(get_object(deployment, "spec", "template"))


def _without_nothing(template: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in get_object(template, "metadata").items() if value}
    return {**template, "metadata": metadata}


def find_new(deployment: JsonObject, sets: Sequence[JsonObject]) -> JsonObject | None:
    """The set of the present template; the oldest, should there be several."""
    return next((found for found in by_age(sets) if same_template(deployment, found)), None)


def revision(obj: JsonObject) -> int:
    """The revision in an object's annotations; 0 where there is none."""
    text = meta.annotations(obj).get(REVISION, "")
    return int(text) if text.isdigit() else 0


def new_set_replicas(deployment: JsonObject, sets: Sequence[JsonObject], current: int) -> int:
    """How many replicas the new set may have now, having `current`; `sets` are all sets."""
    wanted = replicas(deployment)
    if is_recreate(deployment):
        return wanted
    room = wanted + max_surge(deployment) - total(sets)
    if room <= 0:
        return current
    return current + min(room, wanted - current)


def scale_new(deployment: JsonObject, new: JsonObject, sets: Sequence[JsonObject]) -> int:
    """The replicas of the new set in a rolling update."""
    wanted, current = replicas(deployment), replicas(new)
    return wanted if current > wanted else new_set_replicas(deployment, sets, current)


def scale_old(deployment: JsonObject, new: JsonObject, old: Sequence[JsonObject]) -> dict[str, int]:
    """The replicas of old sets, by name, in a rolling update; unhealthy pods go first."""
    active = [found for found in by_age(old) if replicas(found) > 0]
    minimum = replicas(deployment) - max_unavailable(deployment)
    unavailable_new = replicas(new) - get_int(new, "status", "availableReplicas")
    budget = total(active) + replicas(new) - minimum - unavailable_new
    if not active or budget <= 0:
        return {}
    sizes = {meta.name(found): replicas(found) for found in active}
    cleaned = 0
    for found in active:
        unhealthy = sizes[meta.name(found)] - get_int(found, "status", "availableReplicas")
        step = min(budget - cleaned, max(0, unhealthy))
        sizes[meta.name(found)] -= step
        cleaned += step
    spare = in_status([*active, new], "availableReplicas") - minimum
    for found in active:
        step = min(max(0, spare), sizes[meta.name(found)])
        sizes[meta.name(found)] -= step
        spare -= step
    return {name: size for name, size in sizes.items() if size != _size(active, name)}


def _size(sets: Sequence[JsonObject], name: str) -> int:
    return next(replicas(found) for found in sets if meta.name(found) == name)


def scale_proportionally(
    deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]
) -> dict[str, int]:
    """The replicas of all sets, by name, after the deployment was scaled or while it is paused."""
    wanted = replicas(deployment)
    sets = [*old, *([new] if new else [])]
    active = [found for found in sets if replicas(found) > 0]
    if len(active) <= 1:
        only = active[0] if active else new or (by_age(sets)[-1] if sets else None)
        return {meta.name(only): wanted} if only is not None and replicas(only) != wanted else {}
    if new is not None and _is_saturated(deployment, new):
        return {meta.name(found): 0 for found in old if replicas(found) > 0}
    if is_recreate(deployment):
        return {}
    allowed = wanted + max_surge(deployment) if wanted > 0 else 0
    return _proportions(active, allowed)


def _proportions(active: Sequence[JsonObject], allowed: int) -> dict[str, int]:
    """Share what is missing to `allowed`, or too much, among the sets by size; the largest takes the rest."""
    whole = total(active)
    difference = allowed - whole
    if difference == 0:
        return {}
    newest_first = list(reversed(by_age(active)))
    order = sorted(newest_first if difference > 0 else by_age(active), key=replicas, reverse=True)
    sizes: dict[str, int] = {}
    given = 0
    for found in order:
        size = replicas(found)
        share = _rounded(size * allowed, whole) - size
        left = difference - given
        share = max(0, min(share, left)) if difference > 0 else min(0, max(share, left))
        sizes[meta.name(found)] = size + share
        given += share
    largest = meta.name(order[0])
    sizes[largest] = max(0, sizes[largest] + difference - given)
    return {name: size for name, size in sizes.items() if size != _size(active, name)}


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _is_saturated(deployment: JsonObject, new: JsonObject) -> bool:
    wanted = replicas(deployment)
    desired = meta.annotations(new).get(DESIRED_REPLICAS)
    return (
        replicas(new) == wanted
        and desired == str(wanted)
        and get_int(new, "status", "availableReplicas") == wanted
    )


def needs_scaling(deployment: JsonObject, sets: Sequence[JsonObject]) -> bool:
    """Whether the deployment's size changed since its active sets were last sized."""
    wanted = str(replicas(deployment))
    return any(
        meta.annotations(found).get(DESIRED_REPLICAS, wanted) != wanted
        for found in sets
        if replicas(found) > 0
    )


def set_annotations(
    deployment: JsonObject, existing: dict[str, str], new_revision: int, *, is_new: bool
) -> dict[str, str]:
    """The annotations of the new set: the deployment's, its revision and (on creation) its sizes."""
    result = dict(existing)
    copied = {key: value for key, value in meta.annotations(deployment).items() if key not in _NOT_COPIED}
    result.update(copied)
    current = result.get(REVISION, "")
    if not current.isdigit() or int(current) < new_revision:
        if current:
            history = [entry for entry in result.get(REVISION_HISTORY, "").split(",") if entry]
            if not history or history[-1] != current:
                history.append(current)
            result[REVISION_HISTORY] = ",".join(history)
        result[REVISION] = str(new_revision)
    if is_new:
        result.update(size_annotations(deployment))
    return result


def size_annotations(deployment: JsonObject) -> dict[str, str]:
    """What a set remembers of its deployment's size."""
    wanted = replicas(deployment)
    return {DESIRED_REPLICAS: str(wanted), MAX_REPLICAS: str(wanted + max_surge(deployment))}


def to_clean_up(deployment: JsonObject, old: Sequence[JsonObject]) -> list[JsonObject]:
    """Old sets beyond the revision history limit, oldest first. Only empty ones may go."""
    limit = get_int(deployment, "spec", "revisionHistoryLimit", default=10)
    living = [found for found in old if not meta.is_being_deleted(found)]
    excess = len(living) - limit
    if limit == NO_DEADLINE or excess <= 0:
        return []
    ordered = sorted(living, key=lambda found: (meta.creation_timestamp(found), revision(found)))
    return [
        found
        for found in ordered[:excess]
        if replicas(found) == 0
        and get_int(found, "status", "replicas") == 0
        and meta.generation(found) <= get_int(found, "status", "observedGeneration")
    ]


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
    """Set a condition as deployments have them: nothing moves while status and reason stay the same."""
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
    """Whether the rollout came further since the status was last written."""
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
    """When to look again for a rollout that hangs; None where nothing hangs."""
    condition = meta.find_condition(result["conditions"], "Progressing")
    seconds = deadline_seconds(deployment)
    if seconds is None or condition is None or is_complete(deployment, result):
        return None
    if condition.get("reason") in ("ProgressDeadlineExceeded", "NewReplicaSetAvailable", "DeploymentPaused"):
        return None
    due = parse_time(condition["lastUpdateTime"]) + timedelta(seconds=seconds + 1)
    return max(1.0, (due - now).total_seconds())
