"""What pools and replica sets have in common: counting, and waiting for what they asked for to be seen."""

from __future__ import annotations

from collections.abc import Callable

from kubecore.json import JsonObject, deep_copy, get_bool, get_object
from kubecore.objects import meta
from kubecore.runtime import Expectations
from virtplane.compute.controller import conditions
from virtplane.compute.controller.cluster import owner_key

Observe = Callable[[str, JsonObject | None, JsonObject], None]


def observer(expected: Expectations, kind: str) -> Observe:
    """An informer's handler that settles what owners of `kind` expect of the objects they control."""
    owners = owner_key(kind)

    def observe(event: str, old: JsonObject | None, new: JsonObject) -> None:
        for key in owners(new):
            if event == "ADDED":
                expected.creation_observed(key)
            elif event == "DELETED" or meta.is_being_deleted(new):
                expected.deletion_observed(key, meta.uid(new))

    return observe


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
