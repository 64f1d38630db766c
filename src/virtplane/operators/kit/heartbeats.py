"""Conditions with heartbeats: how the operators of storage report what they see. Pure.

A condition says when it was last looked at and since when it is so. Available, Progressing and Degraded are
there together; the one that matters says why, by a reason and a message.
"""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_str
from virtplane.operators.kit.status import AVAILABLE, DEGRADED, PROGRESSING

_STATES = (AVAILABLE, PROGRESSING, DEGRADED)


def find(status: JsonObject, type_: str) -> JsonObject:
    """A condition; empty where there is none."""
    found = (each for each in get_list(status, "conditions") if get_str(each, "type") == type_)
    return next(found, {})


def others(status: JsonObject, *types: str) -> list[JsonObject]:
    """The conditions of other types than these."""
    return [each for each in get_list(status, "conditions") if get_str(each, "type") not in types]


def condition(status: JsonObject, type_: str, state: str, now: str) -> JsonObject:
    """A condition that is `state` now; it keeps its transition while it was so in `status`, too."""
    before = find(status, type_)
    since = get_str(before, "lastTransitionTime") if get_str(before, "status") == state else now
    return {"type": type_, "status": state, "lastHeartbeatTime": now, "lastTransitionTime": since}


def with_states(
    status: JsonObject, states: tuple[bool, bool, bool], now: str, named: str, reason: str, message: str
) -> JsonObject:
    """The status with all three conditions set (available, progressing, degraded); `named` says why."""
    conditions = []
    for type_, state in zip(_STATES, states, strict=True):
        made = condition(status, type_, str(state), now)
        conditions.append(made | {"reason": reason, "message": message} if type_ == named else made)
    return {**status, "conditions": [*others(status, *_STATES), *conditions]}


def without_heartbeats(status: JsonObject) -> JsonObject:
    """What makes two statuses different: a heartbeat alone does not."""
    conditions = [
        {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
        for each in get_list(status, "conditions")
    ]
    return {**status, "conditions": conditions}
