"""The next phase of a migration, decided from it, the instance and the target pod."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from virtplane.api import labels
from virtplane.cluster import conditions
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi.phases import is_final

FINALIZER = labels.FINALIZER_MIGRATION
FINAL_PHASES = ("Succeeded", "Failed")
_UNTIL_HAND_OFF = ("", "Pending", "Scheduling", "Scheduled")
_AFTER_CREATION = ("Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running")


@dataclass(frozen=True, slots=True)
class Around:
    """What a migration's phase depends on."""

    vmi: JsonObject | None
    target: JsonObject | None
    """The target launcher."""
    source: JsonObject | None = None
    is_blocked: bool = False
    """Another migration of the same instance is under way."""
    rejected: str = ""
    """Why the target launcher could not be created (a quota)."""


@dataclass(slots=True)
class Next:
    """The migration as it should be stored, and the event that tells of its end."""

    migration: JsonObject
    event: tuple[str, str, str] | None = None


def phase_of(migration: JsonObject) -> str:
    """The phase, empty before the first."""
    return get_str(migration, "status", "phase")


def is_finished(migration: JsonObject) -> bool:
    """Whether the migration has ended."""
    return phase_of(migration) in FINAL_PHASES


def runs(vmi: JsonObject) -> bool:
    """Whether there is a guest on some node that could be moved."""
    return get_str(vmi, "status", "phase") == "Running" and bool(get_str(vmi, "status", "nodeName"))


def state_of(vmi: JsonObject | None, migration: JsonObject) -> JsonObject:
    """The instance's migration state, where it is this migration's."""
    state = get_object(vmi, "status", "migrationState")
    return state if state.get("migrationUid") == meta.uid(migration) else {}


def next_state(migration: JsonObject, around: Around) -> Next:
    """One step further, or the end."""
    new = deep_copy(migration)
    result = Next(new)
    if is_finished(new):
        _release(new, around)
        return result
    failure = _failure(new, around)
    if failure:
        _fail(result, failure)
    else:
        _advance(result, around)
    if around.source is not None and "migrationState" not in new["status"]:
        new["status"]["migrationState"] = {"sourcePod": meta.name(around.source)}
    if is_finished(new):
        state = state_of(around.vmi, new)
        if state:
            new["status"]["migrationState"] = deep_copy(state)
        _release(new, around)
    return result


def _release(migration: JsonObject, around: Around) -> None:
    """The finalizer goes once nothing of the failed target is left."""
    is_gone = around.target is None or pods.is_down(around.target)
    if phase_of(migration) == "Succeeded" or is_gone or not meta.is_being_deleted(migration):
        meta.remove_finalizer(migration, FINALIZER)


def _set_phase(migration: JsonObject, phase: str) -> None:
    status = migration.setdefault("status", {})
    if status.get("phase") == phase:
        return
    status["phase"] = phase
    entered = {"phase": phase, "phaseTransitionTimestamp": now_rfc3339()}
    status.setdefault("phaseTransitionTimestamps", []).append(entered)


def _fail(result: Next, text: str) -> None:
    _set_phase(result.migration, "Failed")
    result.event = ("Warning", "FailedMigration", text)


def _failure(migration: JsonObject, around: Around) -> str:
    phase, vmi = phase_of(migration), around.vmi
    if vmi is None:
        return "Migration failed because vmi does not exist."
    state = get_object(vmi, "status", "migrationState")
    if is_final(vmi):
        return "Migration failed vmi shutdown during migration."
    if meta.is_being_deleted(migration) and phase in _UNTIL_HAND_OFF and not state_of(vmi, migration):
        known = migration.setdefault("status", {}).setdefault("conditions", [])
        conditions.put(known, conditions.new_condition("migrationAbortRequested", "True"))
        return "Migration failed due to being canceled"
    if around.is_blocked and not phase:
        return "VMI is not eligible for migration because another migration job is in progress."
    # An earlier migration's state is there until this one is handed off: it says nothing of this one.
    is_completed = bool(state_of(vmi, migration).get("completed"))
    if around.target is not None and pods.is_down(around.target) and not is_completed:
        return "Migration failed because target pod shutdown during migration"
    if around.target is None and phase in _AFTER_CREATION and not is_completed:
        return "Migration target pod was removed during active migration."
    return _hand_over_failure(phase, migration, state)


def _hand_over_failure(phase: str, migration: JsonObject, state: JsonObject) -> str:
    if phase not in ("PreparingTarget", "TargetReady", "Running"):
        return ""
    if not state:
        return "VMI's migration state was cleared during the active migration."
    if state.get("migrationUid") != meta.uid(migration):
        return "VMI's migration state was taken over by another migration job during active migration."
    if state.get("failed"):
        return "source node reported migration failed"
    return ""


def _advance(result: Next, around: Around) -> None:
    migration, target = result.migration, around.target
    state = state_of(around.vmi, migration)
    phase = phase_of(migration)
    known = migration.setdefault("status", {}).setdefault("conditions", [])
    if around.rejected:
        rejection = conditions.new_condition(
            "migrationRejectedByResourceQuota", "True", message=around.rejected
        )
        conditions.put(known, rejection)
    else:
        conditions.drop(known, "migrationRejectedByResourceQuota")
    if not known:
        del migration["status"]["conditions"]
    reached = {
        "": True,
        "Pending": target is not None,
        "Scheduling": target is not None and pods.is_ready(target),
        "Scheduled": bool(state.get("targetNode")),
        "PreparingTarget": bool(state.get("targetNode") and state.get("targetNodeAddress")),
        "TargetReady": bool(state.get("startTimestamp")),
        "Running": bool(state.get("completed")) and not _waits_for_hotplug(around.vmi or {}),
    }
    order = [
        "",
        "Pending",
        "Scheduling",
        "Scheduled",
        "PreparingTarget",
        "TargetReady",
        "Running",
        "Succeeded",
    ]
    if reached.get(phase):
        following = order[order.index(phase) + 1]
        _set_phase(migration, following)
        if following == "Succeeded":
            text = "Source node reported migration succeeded"
            result.event = ("Normal", "SuccessfulMigration", text)


def _waits_for_hotplug(vmi: JsonObject) -> bool:
    known = meta.conditions(vmi)
    if any(item.get("type") == "HotVCPUChange" for item in known):
        return True
    return any(
        conditions.has_status(known, type, "True") for type in ("HotMemoryChange", "MigrationRequired")
    )
