"""The next phase of a migration, computed from the migration, the instance and the target pod."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import encode
from kubecore.objects.times import now_rfc3339
from kubecore.runtime import EventKind
from virtplane.api import labels
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.migration import (
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationState,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster import conditions
from virtplane.cluster.objects import condition_documents
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi.phases import is_final

FINALIZER = labels.FINALIZER_MIGRATION
_CANCELED = "Migration failed due to being canceled"
FINAL_PHASES = ("Succeeded", "Failed")
_UNTIL_HAND_OFF = ("", "Pending", "Scheduling", "Scheduled")
_ORDER = (
    "",
    "Pending",
    "Scheduling",
    "Scheduled",
    "PreparingTarget",
    "TargetReady",
    "Running",
    "Succeeded",
)
_AFTER_CREATION = ("Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running")


@dataclass(frozen=True, slots=True)
class Around:
    """The objects on which a migration's phase depends."""

    vmi: VirtualMachineInstance | None
    target: JsonObject | None
    """The target launcher."""
    source: JsonObject | None = None
    is_blocked: bool = False
    """Another migration of the same instance is under way."""
    rejected: str = ""
    """Why the target launcher could not be created (a quota)."""


@dataclass(frozen=True, slots=True)
class Next:
    """The new status of a migration, and the event that reports its end."""

    status: JsonObject
    is_released: bool = False
    """Whether its finalizer goes."""
    event: tuple[EventKind, str, str] | None = None


def phase_of(migration: VirtualMachineInstanceMigration) -> str:
    """The phase; empty before the first."""
    return migration.status.phase or ""


def is_finished(migration: VirtualMachineInstanceMigration) -> bool:
    """Whether the migration has ended."""
    return migration.status.phase in FINAL_PHASES


def runs(vmi: VirtualMachineInstance) -> bool:
    """Whether the instance has a running guest that could be migrated."""
    return vmi.status.phase == "Running" and bool(vmi.status.node_name)


def state_of(
    vmi: VirtualMachineInstance | None, migration: VirtualMachineInstanceMigration
) -> VirtualMachineInstanceMigrationState | None:
    """The instance's migration state, if it is about this migration."""
    state = vmi.status.migration_state if vmi is not None else None
    return state if state is not None and state.migration_uid == migration.metadata.uid else None


def next_state(migration: VirtualMachineInstanceMigration, around: Around) -> Next:
    """The next phase and status."""
    phase, known = phase_of(migration), condition_documents(migration.status.conditions)
    status: JsonObject = {**encode(migration.status), "conditions": known}
    if phase in FINAL_PHASES:
        return Next(status, _is_released(phase, migration, around))
    state = state_of(around.vmi, migration)
    failure = _failure(migration, around)
    following = "Failed" if failure else _following(phase, around, state)
    if following != phase:
        status["phase"] = following
        entered = {"phase": following, "phaseTransitionTimestamp": now_rfc3339()}
        status.setdefault("phaseTransitionTimestamps", []).append(entered)
    _set_conditions(known, failure, around)
    if not known:
        status.pop("conditions")
    if around.source is not None and migration.status.migration_state is None:
        status["migrationState"] = {"sourcePod": meta.name(around.source)}
    if following not in FINAL_PHASES:
        return Next(status)
    if state is not None:
        status["migrationState"] = encode(state)
    return Next(status, _is_released(following, migration, around), _event(following, failure))


def _event(phase: str, failure: str) -> tuple[EventKind, str, str] | None:
    if failure:
        return "Warning", "FailedMigration", failure
    if phase == "Succeeded":
        return "Normal", "SuccessfulMigration", "Source node reported migration succeeded"
    return None


def _is_released(phase: str, migration: VirtualMachineInstanceMigration, around: Around) -> bool:
    """The finalizer is removed once no object of a failed target is left."""
    is_gone = around.target is None or pods.is_down(around.target)
    return phase == "Succeeded" or is_gone or not migration.metadata.is_being_deleted


def _failure(migration: VirtualMachineInstanceMigration, around: Around) -> str:
    phase, vmi = phase_of(migration), around.vmi
    if vmi is None:
        return "Migration failed because vmi does not exist."
    if is_final(vmi):
        return "Migration failed vmi shutdown during migration."
    state = state_of(vmi, migration)
    if migration.metadata.is_being_deleted and phase in _UNTIL_HAND_OFF and state is None:
        return _CANCELED
    if around.is_blocked and not phase:
        return "VMI is not eligible for migration because another migration job is in progress."
    # Before the hand-off, the instance may still have the state of an earlier migration.
    is_completed = state is not None and bool(state.completed)
    if around.target is not None and pods.is_down(around.target) and not is_completed:
        return "Migration failed because target pod shutdown during migration"
    if around.target is None and phase in _AFTER_CREATION and not is_completed:
        return "Migration target pod was removed during active migration."
    if phase not in ("PreparingTarget", "TargetReady", "Running"):
        return ""
    if vmi.status.migration_state in (None, VirtualMachineInstanceMigrationState()):
        return "VMI's migration state was cleared during the active migration."
    if state is None:
        return "VMI's migration state was taken over by another migration job during active migration."
    return "source node reported migration failed" if state.failed else ""


def _set_conditions(known: list[JsonObject], failure: str, around: Around) -> None:
    if failure == _CANCELED:
        conditions.put(known, conditions.new_condition("migrationAbortRequested", "True"))
    elif not failure and around.rejected:
        rejection = conditions.new_condition(
            "migrationRejectedByResourceQuota", "True", message=around.rejected
        )
        conditions.put(known, rejection)
    elif not failure:
        conditions.drop(known, "migrationRejectedByResourceQuota")


def _following(phase: str, around: Around, state: VirtualMachineInstanceMigrationState | None) -> str:
    """The phase after `phase` if its condition is met, else `phase`."""
    target, state = around.target, state or VirtualMachineInstanceMigrationState()
    reached = {
        "": True,
        "Pending": target is not None,
        "Scheduling": target is not None and pods.is_ready(target),
        "Scheduled": bool(state.target_node),
        "PreparingTarget": bool(state.target_node and state.target_node_address),
        "TargetReady": bool(state.start_timestamp),
        "Running": bool(state.completed) and not _waits_for_hotplug(around.vmi),
    }
    return _ORDER[_ORDER.index(phase) + 1] if reached.get(phase) else phase


def _waits_for_hotplug(vmi: VirtualMachineInstance | None) -> bool:
    known = vmi.status.conditions if vmi is not None else ()
    if any(item.type == "HotVCPUChange" for item in known) and not _has_its_sockets(vmi):
        return True
    return any(is_true(known, type) for type in ("HotMemoryChange", "MigrationRequired"))


def _has_its_sockets(vmi: VirtualMachineInstance | None) -> bool:
    """Whether the guest has the sockets that it should have; the condition may say otherwise.

    A change that was asked for after the guest had moved is left to the next migration.
    """
    topology = vmi.status.current_cpu_topology if vmi is not None else None
    return vmi is not None and topology is not None and topology.sockets == vmi.spec.domain.cpu.sockets
