"""Conditions with a heartbeat, as CDI's objects have them."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api.conditions import HeartbeatCondition

Conditions = tuple[HeartbeatCondition, ...]


def with_condition(
    before: Conditions,
    type: str,
    status: str,
    reason: str,
    message: str,
    now: str,
    *,
    of_another: bool = False,
) -> Conditions:
    """`before` with one condition as it is `now`; the same where nothing of it changes.

    The transition time follows the status, the heartbeat every change. A condition `of_another` object than
    it was of before has changed, whatever it says.
    """
    old = next((each for each in before if each.type == type), None)
    if old is None or of_another:
        changed: str | None = now
    elif (old.status, old.reason or "", old.message or "") == (status, reason, message):
        return before
    else:
        changed = now if old.status != status else old.last_transition_time
    made = HeartbeatCondition(
        type=type,
        status=status,
        reason=reason or None,
        message=message or None,
        last_heartbeat_time=now,
        last_transition_time=changed,
    )
    if old is None:
        return (*before, made)
    return tuple(made if each.type == type else each for each in before)


def documents(conditions: Iterable[HeartbeatCondition]) -> list[JsonObject]:
    """Conditions as they are written."""
    return [encode(each) for each in conditions]
