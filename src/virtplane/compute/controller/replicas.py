"""What pools and replica sets have in common: their status."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_bool, get_object
from virtplane.cluster import conditions


def next_status(
    owner: JsonObject,
    *,
    replicas: int,
    ready: int,
    selector: str,
    failure: tuple[str, str] | None,
    paused: tuple[str, str],
) -> JsonObject:
    """The owner's status (pure).

    `failure` is reason and message of what could not be done, `paused` those of a pause, if there is one.
    """
    status = deep_copy(get_object(owner, "status"))
    for key, value in (("replicas", replicas), ("readyReplicas", ready), ("labelSelector", selector)):
        if value:
            status[key] = value
        else:
            status.pop(key, None)
    known = status.setdefault("conditions", [])
    if failure is None:
        conditions.drop(known, "ReplicaFailure")
    else:
        conditions.put(known, conditions.new_condition("ReplicaFailure", "True", *failure))
    if get_bool(owner, "spec", "paused"):
        conditions.put(known, conditions.new_condition("ReplicaPaused", "True", *paused))
    else:
        conditions.drop(known, "ReplicaPaused")
    if not known:
        del status["conditions"]
    return status
