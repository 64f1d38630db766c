"""Conditions as KubeVirt writes them: ``lastProbeTime`` is always there, null where nothing was probed."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.meta import find_condition
from kubecore.objects.times import now_rfc3339


def new_condition(
    type: str, status: str, reason: str = "", message: str = "", *, probed: bool = False, dated: bool = True
) -> JsonObject:
    """A condition from now. `probed` sets the probe time; without `dated` the transition time is null."""
    moment = now_rfc3339()
    condition: JsonObject = {
        "type": type,
        "status": status,
        "lastProbeTime": moment if probed else None,
        "lastTransitionTime": moment if dated else None,
    }
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def put(conditions: list[JsonObject], condition: JsonObject) -> bool:
    """Sets a condition; one that says the same stays with its times. Says whether anything changed."""
    existing = find_condition(conditions, condition["type"])
    if existing is None:
        conditions.append(condition)
        return True
    if says_same(existing, condition):
        return False
    conditions[conditions.index(existing)] = condition
    return True


def keep_time(conditions: list[JsonObject], former: JsonObject) -> None:
    """A condition that was set anew and says what `former` said has been so since `former`."""
    existing = find_condition(conditions, former["type"])
    if existing is not None and says_same(existing, former):
        conditions[conditions.index(existing)] = former


def says_same(one: JsonObject, other: JsonObject) -> bool:
    """Whether two conditions differ in nothing but their times."""
    return all(
        (one.get(key) or "") == (other.get(key) or "") for key in ("type", "status", "reason", "message")
    )


def drop(conditions: list[JsonObject], type: str) -> bool:
    """Removes a condition. Says whether it was there."""
    existing = find_condition(conditions, type)
    if existing is None:
        return False
    conditions.remove(existing)
    return True


def has_status(conditions: list[JsonObject], type: str, status: str) -> bool:
    """Whether a condition is there with that status."""
    existing = find_condition(conditions, type)
    return existing is not None and existing.get("status") == status
