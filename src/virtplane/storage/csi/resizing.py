"""Claims that grow: what to do next, and how their status says it.

The rules are those of the external-resizer with recovery from failed growth: a claim says which size was last
asked of the driver (``allocatedResources``) and how far that is (``allocatedResourceStatuses``), so that a
user may take back a size that the driver cannot give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.quantity import Quantity
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim

CONTROLLER_IN_PROGRESS = "ControllerResizeInProgress"
CONTROLLER_INFEASIBLE = "ControllerResizeInfeasible"
NODE_PENDING = "NodeResizePending"
NODE_IN_PROGRESS = "NodeResizeInProgress"
NODE_INFEASIBLE = "NodeResizeInfeasible"

RESIZING = "Resizing"
FILE_SYSTEM_PENDING = "FileSystemResizePending"
CONTROLLER_ERROR = "ControllerResizeError"
NODE_ERROR = "NodeResizeError"
_CONDITIONS = frozenset({RESIZING, FILE_SYSTEM_PENDING, CONTROLLER_ERROR, NODE_ERROR})
PENDING_MESSAGE = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
STORAGE = "storage"

Conditions = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Growth:
    """What to ask of the driver: the size, and whether the claim's status says so already."""

    size: Quantity
    is_recorded: bool


def requested(claim: PersistentVolumeClaim) -> Quantity:
    """The size that the user wants."""
    resources = claim.spec.resources
    return amount(resources.requests if resources is not None else {}) or Quantity.of(0)


def amount(amounts: Mapping[str, str | int]) -> Quantity | None:
    """The amount of storage among `amounts`."""
    return Quantity.parse(amounts[STORAGE]) if STORAGE in amounts else None


def wants_growth(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is smaller than its user wants."""
    present = amount(claim.status.capacity) or Quantity.of(0)
    return claim.status.phase == "Bound" and bool(claim.spec.volume_name) and requested(claim) > present


def belong_together(claim: PersistentVolumeClaim, volume: PersistentVolume, driver: str) -> bool:
    """Whether `volume` is the claim's, and the driver's."""
    reference, csi = volume.spec.claim_ref, volume.spec.csi
    if csi is None or csi.driver != driver or reference is None:
        return False
    return (reference.namespace, reference.uid) == (claim.metadata.namespace, claim.metadata.uid)


def next_growth(
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    *,
    refused: bool,
    driver_grows: bool,
) -> Growth | None:
    """The size to ask for; None where that is done, and the rest is for the node.

    `refused`: the driver has finally refused the recorded size. `driver_grows`: the driver itself grows
    volumes, not only its nodes.
    """
    wish, present = requested(claim), amount(volume.spec.capacity) or Quantity.of(0)
    status = claim.status.allocated_resource_statuses.get(STORAGE, "")
    recorded = amount(claim.status.allocated_resources)
    size = wish
    if present < wish:
        if status in (NODE_INFEASIBLE, NODE_PENDING, NODE_IN_PROGRESS):
            size = recorded or wish
            if status != NODE_INFEASIBLE and present >= size:
                return None
        elif status == CONTROLLER_IN_PROGRESS and not refused:
            # It may be under way: the same size must be asked for until the outcome is known.
            size = recorded or wish
    elif status in (NODE_IN_PROGRESS, NODE_PENDING):
        return None
    elif status == NODE_INFEASIBLE:
        size = (recorded or wish) if driver_grows else wish
    elif status in (CONTROLLER_IN_PROGRESS, CONTROLLER_INFEASIBLE) or (not status and recorded is not None):
        size = recorded or wish
    elif has_condition(claim.status.conditions, FILE_SYSTEM_PENDING):
        return None
    return Growth(size, recorded is not None and recorded == size)


def has_condition(conditions: Conditions, kind: str) -> bool:
    """Whether the condition `kind` is true."""
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def merged(
    conditions: Conditions, kind: str = "", message: str = "", *, keep: bool = False
) -> list[JsonObject]:
    """The conditions with the one of `kind` set, others about growth left out unless they are to be kept."""
    fresh: JsonObject = {"type": kind, "status": "True", "lastTransitionTime": times.now_rfc3339()}
    if message:
        fresh["message"] = message
    result: list[JsonObject] = []
    for each in conditions:
        if each.get("type") == kind:
            same = each.get("status") == "True" and each.get("message", "") == message
            result.append(dict(each) if same else fresh)
        elif each.get("type") not in _CONDITIONS or keep:
            result.append(dict(each))
    if kind and all(each.get("type") != kind for each in result):
        result.append(fresh)
    return result


def with_status(status: JsonObject, text: str) -> None:
    """Set (or, where empty, remove) how far growth is in a claim's `status` document."""
    statuses = dict(status.get("allocatedResourceStatuses") or {})
    statuses.pop(STORAGE, None)
    if text:
        statuses[STORAGE] = text
    if statuses:
        status["allocatedResourceStatuses"] = statuses
    else:
        status.pop("allocatedResourceStatuses", None)
