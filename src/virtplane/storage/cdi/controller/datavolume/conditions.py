"""The conditions of a DataVolume."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.api import cdi_labels as names
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims

BOUND = "Bound"
READY = "Ready"
RUNNING = "Running"
TYPES = (BOUND, READY, RUNNING)
_NOT_FOUND = "NotFound"
_TRANSFER_RUNNING = "TransferRunning"
_UNSCHEDULABLE = ("Unschedulable", "Importer pod cannot be scheduled")


@dataclass(frozen=True, slots=True)
class State:
    """One condition without its times."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no claim."""

    reason: str
    message: str
    is_refusal: bool = False
    """Whether the API server, or a webhook, does not take the claim: as with CDI, there is none then."""


def states(
    phase: str, claim: PersistentVolumeClaim | None, uses_populator: bool, problem: Problem | None = None
) -> tuple[State, State, State]:
    """Bound, Ready and Running."""
    running = _running(claim)
    return _bound(claim, uses_populator, problem), _ready(phase, running, problem), running


def _bound(claim: PersistentVolumeClaim | None, uses_populator: bool, problem: Problem | None) -> State:
    if problem is not None and not problem.is_refusal:
        return State(BOUND, "False", problem.reason, problem.message)
    if claim is None:
        return State(BOUND, "False", _NOT_FOUND, "No PVC found")
    name = claim.metadata.name
    reason, message = claims.value(claim, names.BOUND_REASON), claims.value(claim, names.BOUND_MESSAGE)
    denied = claims.has(claim, names.BOUND) and not claims.is_true(claim.metadata, names.BOUND)
    if claims.is_bound(claim):
        if denied:
            return State(BOUND, "False", reason, message)
        return State(BOUND, "True", "Bound", f"PVC {name} Bound")
    if claims.is_pending(claim):
        if denied and uses_populator:
            text = f"target PVC {name} Pending and {message}"
            return State(BOUND, "False", reason or claims.PENDING, text)
        return State(BOUND, "False", claims.PENDING, f"PVC {name} Pending")
    if claim.status.phase == claims.LOST:
        return State(BOUND, "False", "ClaimLost", "Claim Lost")
    return State(BOUND, "Unknown")


def _ready(phase: str, running: State, problem: Problem | None) -> State:
    if problem is not None:
        return State(READY, "False", "" if problem.is_refusal else problem.reason, problem.message)
    if phase == "Succeeded":
        return State(READY, "True")
    if phase == "Unknown":
        return State(READY, "Unknown")
    return State(READY, "False", _TRANSFER_RUNNING if running.status == "True" else "")


def _running(claim: PersistentVolumeClaim | None) -> State:
    """Of a copy by pods, both must run."""
    if claim is None:
        return State(RUNNING, "False")
    is_running = claims.is_true(claim.metadata, names.RUNNING)
    if not is_running and claims.value(claim, names.POD_SCHEDULABLE) == claims.FALSE:
        return State(RUNNING, "False", *_UNSCHEDULABLE)
    reason, message = claims.value(claim, names.RUNNING_REASON), claims.value(claim, names.RUNNING_MESSAGE)
    if claims.value(claim, names.SOURCE_RUNNING) == claims.FALSE:
        source_reason = claims.value(claim, names.SOURCE_RUNNING_REASON)
        source_message = claims.value(claim, names.SOURCE_RUNNING_MESSAGE)
        if is_running:
            return State(RUNNING, "False", source_reason, source_message)
        reason, message = f"{reason} and {source_reason}", f"{message} and {source_message}"
    return State(RUNNING, "True" if is_running else "False", reason, message)


def documents(before: Iterable[HeartbeatCondition], wanted: Iterable[State], now: str) -> list[JsonObject]:
    """The conditions to write: times move only where something else does."""
    known = {each.type: each for each in before}
    return [_document(known.get(state.type), state, now) for state in wanted]


def _document(before: HeartbeatCondition | None, state: State, now: str) -> JsonObject:
    same = before is not None and changed(before, state) is False
    heartbeat = before.last_heartbeat_time if before is not None and same else now
    stays = before is not None and before.status == state.status
    transition = before.last_transition_time if before is not None and stays else now
    found: JsonObject = {
        "type": state.type,
        "status": state.status,
        "lastHeartbeatTime": heartbeat or now,
        "lastTransitionTime": transition or now,
    }
    if state.reason:
        found["reason"] = state.reason
    if state.message:
        found["message"] = state.message
    return found


def changed(before: HeartbeatCondition | None, state: State) -> bool:
    """Whether `state` says something else than the condition did."""
    if before is None:
        return True
    said = (before.status, before.reason or "", before.message or "")
    return said != (state.status, state.reason, state.message)
