"""Why the agent ends a pod by itself, and how long the pod may take; pure."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import times

EVICTED = "Evicted"
_FINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Ending:
    """A pod that fails: reason and message of its status. `grace_seconds` replaces the pod's own;
    `disruption` is the message of its condition DisruptionTarget, if it gets one.
    """

    reason: str
    message: str
    grace_seconds: int | None = None
    disruption: str = ""


def begun(pod: JsonObject) -> Ending | None:
    """The eviction that an agent which was stopped meanwhile had begun."""
    if get_str(pod, "status", "reason") != EVICTED or get_str(pod, "status", "phase") in _FINAL:
        return None
    targets = [
        item for item in get_list(pod, "status", "conditions") if item.get("type") == "DisruptionTarget"
    ]
    message = get_str(pod, "status", "message")
    return Ending(EVICTED, message, 1, get_str(targets[0], "message") if targets else "")


def overdue(pod: JsonObject) -> Ending | None:
    """The end of a pod that has been active for as long as it may be."""
    deadline = get_object(pod, "spec").get("activeDeadlineSeconds")
    started = get_str(pod, "status", "startTime")
    if not isinstance(deadline, int) or not started:
        return None
    if times.seconds_between(started, times.now_rfc3339()) < deadline:
        return None
    return Ending("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


def grace_seconds(pod: JsonObject, ending: Ending | None) -> int:
    """How long the pod's containers may take to end."""
    metadata = get_object(pod, "metadata")
    if "deletionGracePeriodSeconds" in metadata:
        wanted = get_int(metadata, "deletionGracePeriodSeconds")
    else:
        wanted = get_int(pod, "spec", "terminationGracePeriodSeconds", default=30)
    if ending is None or ending.grace_seconds is None:
        return wanted
    return min(wanted, ending.grace_seconds)
