"""How many replicas each ReplicaSet of a Deployment should have.

Pure functions over a Deployment and its ReplicaSets.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject, deep_copy, get_int, get_object, get_str
from kubecore.objects import meta

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
    """Whether the strategy is Recreate."""
    return get_str(deployment, "spec", "strategy", "type") == "Recreate"


def scaled(value: object, whole: int, *, round_up: bool) -> int:
    """An int-or-percent value as an absolute number of `whole`."""
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
    # When both round to zero the rollout could not proceed.
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
    """The set of the current template; of several, the oldest."""
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
    """Distribute the difference to `allowed` over the sets in proportion to their sizes; the largest takes
    the remainder.
    """
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
    """The annotations by which a set records the deployment's size."""
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
