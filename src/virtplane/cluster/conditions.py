"""Conditions as KubeVirt writes them: ``lastProbeTime`` is always present, null if there was no probe."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.meta import find_condition
from kubecore.objects.times import now_rfc3339

LONGEST_MESSAGE = 32768
"""Characters that a message has at most, as Kubernetes' own conditions: what is refused is quoted in full."""


def new_condition(
    type: str, status: str, reason: str = "", message: str = "", *, probed: bool = False, dated: bool = True
) -> JsonObject:
    """A new condition. `probed` sets the probe time; without `dated` the transition time is null."""
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
        condition["message"] = message[:LONGEST_MESSAGE]
    return condition


def put(conditions: list[JsonObject], condition: JsonObject) -> bool:
    """Set a condition; an equal one keeps its times. Returns whether anything changed."""
    existing = find_condition(conditions, condition["type"])
    if existing is None:
        conditions.append(condition)
        return True
    if says_same(existing, condition):
        return False
    conditions[conditions.index(existing)] = condition
    return True


def keep_time(conditions: list[JsonObject], former: JsonObject) -> None:
    """Put `former` back in the place of a condition that says the same, so that its times are kept."""
    existing = find_condition(conditions, former["type"])
    if existing is not None and says_same(existing, former):
        conditions[conditions.index(existing)] = former


def says_same(one: JsonObject, other: JsonObject) -> bool:
    """Whether two conditions differ in nothing but their times."""
    return all(
        (one.get(key) or "") == (other.get(key) or "") for key in ("type", "status", "reason", "message")
    )


def drop(conditions: list[JsonObject], type: str) -> bool:
    """Remove a condition. Returns whether there was one."""
    existing = find_condition(conditions, type)
    if existing is None:
        return False
    conditions.remove(existing)
    return True


def has_status(conditions: list[JsonObject], type: str, status: str) -> bool:
    """Whether there is a condition with that status."""
    existing = find_condition(conditions, type)
    return existing is not None and existing.get("status") == status
