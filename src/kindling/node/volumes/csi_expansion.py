"""Growing the file systems of CSI volumes: whether one must grow, and the claim's status on the way.

The external resizer has made the volume larger before; what is left to the node is NodeExpandVolume. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kindling.scheduler import volume_rules
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339

PENDING, IN_PROGRESS, INFEASIBLE = "NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible"
SUCCEEDED = "MountVolume.NodeExpandVolume succeeded"

_INFEASIBLE_CODES = ("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND")
_UNFINISHED_CODES = ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
_CONDITIONS = (
    "FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError",
)  # fmt: skip
_STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Expansion:
    """Grow the file system to `size` bytes; `told`: the claim's status says so already (another node was
    first).
    """

    size: int
    told: bool


def needed(claim: JsonObject, volume: JsonObject, known_size: int | None) -> Expansion | None:
    """What this node must do for a volume whose file system had `known_size` bytes when last seen here."""
    wanted, present = volume_rules.capacity(volume), volume_rules.size_of(claim)
    state = get_str(claim, "status", "allocatedResourceStatuses", _STORAGE)
    if state not in ("", PENDING, IN_PROGRESS):
        return None
    if wanted > present:
        return Expansion(wanted, told=False)
    if not state and known_size is not None and wanted > known_size:
        return Expansion(wanted, told=True)
    if state:
        return Expansion(wanted, told=False)  # interrupted before the end of it was written
    return None


def is_infeasible(code: str) -> bool:
    """Whether an expansion that ended with this error can never succeed."""
    return code in _INFEASIBLE_CODES


def is_final(code: str) -> bool:
    """Whether an expansion that ended with this error is over: the driver does not go on with it."""
    return code not in _UNFINISHED_CODES


def in_progress(claim: JsonObject) -> JsonObject | None:
    """The status patch before the driver's call; None when nothing changes."""
    if get_str(claim, "status", "allocatedResourceStatuses", _STORAGE) == IN_PROGRESS:
        return None
    if not get_object(claim, "status", "allocatedResourceStatuses"):
        return None  # a resizer that does not keep these statuses
    return _patch(claim, {"allocatedResourceStatuses": {_STORAGE: IN_PROGRESS}})


def finished(claim: JsonObject, volume: JsonObject) -> JsonObject:
    """The status patch after the driver's call."""
    kept = [found for found in meta.conditions(claim) if found.get("type") not in _CONDITIONS]
    return _patch(
        claim,
        {
            "capacity": {_STORAGE: get_object(volume, "spec", "capacity").get(_STORAGE)},
            "allocatedResourceStatuses": {_STORAGE: None} if _has_others(claim) else None,
            "conditions": kept or None,
        },
    )


def failed(claim: JsonObject, problem: str, *, infeasible: bool) -> JsonObject:
    """The status patch after an error of the driver that is final."""
    conditions = [dict(found) for found in get_list(claim, "status", "conditions")]
    text = f"failed to expand pvc with {problem}"
    error = {"type": "NodeResizeError", "status": "True", "message": text}
    before = meta.find_condition(conditions, "NodeResizeError")
    if before is None:
        conditions.append({**error, "lastTransitionTime": now_rfc3339()})
    else:
        before.update(error)
    status: JsonObject = {"conditions": conditions}
    if infeasible:
        status["allocatedResourceStatuses"] = {_STORAGE: INFEASIBLE}
    return _patch(claim, status)


def _has_others(claim: JsonObject) -> bool:
    return set(get_object(claim, "status", "allocatedResourceStatuses")) > {_STORAGE}


def _patch(claim: JsonObject, status: JsonObject) -> JsonObject:
    """A merge patch that applies only to the claim as it was read."""
    return {"metadata": {"resourceVersion": meta.resource_version(claim)}, "status": status}
