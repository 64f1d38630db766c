"""What users see of a VM: printable status, conditions, and the copies of its instance's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.cluster import conditions
from virtplane.compute.controller.vm import strategy
from virtplane.compute.controller.vmi.phases import is_final, phase_of

_OWN_CONDITIONS = ("Failure", "RestartRequired", "Ready", "Initialized", "ManualRecoveryRequired")
"""Conditions that are the VM's own, not copies of its instance's."""
_STARTING_PHASES = ("", "Pending", "Scheduling", "Scheduled")


@dataclass(frozen=True, slots=True)
class SyncError:
    """Why synchronizing the VM failed: shown as condition Failure."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class View:
    """A VM and what its printable status depends on."""

    vm: JsonObject
    vmi: JsonObject | None = None
    claims: Mapping[str, JsonObject] = field(default_factory=dict)
    data_volumes: Mapping[str, JsonObject] = field(default_factory=dict)
    expects_creation: bool = False
    expects_deletion: bool = False

    @property
    def used_claims(self) -> list[str]:
        """Names of the claims that the template's volumes use."""
        volumes = get_list(self.vm, "spec", "template", "spec", "volumes")
        return [name for name in (claim_name(decode(Volume, volume)) for volume in volumes) if name]

    @property
    def used_data_volumes(self) -> list[JsonObject]:
        """The DataVolumes behind those claims."""
        return [self.data_volumes[name] for name in self.used_claims if name in self.data_volumes]


def printable_status(view: View) -> str:
    """One word for users; the first rule that holds wins."""
    for word, holds in _RULES:
        if holds(view):
            return word
    return "Unknown"


def _is_running(view: View) -> bool:
    return view.vmi is not None and phase_of(view.vmi) == "Running"


def _is_stopping(view: View) -> bool:
    if view.vmi is None or is_final(view.vmi):
        return False
    return meta.is_being_deleted(view.vmi) or view.expects_deletion


def _is_migrating(view: View) -> bool:
    state = get_object(view.vmi, "status", "migrationState")
    return bool(state.get("startTimestamp")) and not state.get("endTimestamp")


def _is_paused(view: View) -> bool:
    return _is_running(view) and meta.is_condition_true(view.vmi or {}, "Paused")


def _reason(view: View, condition: str, status: str = "False") -> str:
    """Why a condition of the instance is as it is; an instance that has ended waits for nothing any more."""
    if view.vmi is None or is_final(view.vmi):
        return ""
    found = meta.get_condition(view.vmi, condition)
    if found is None or found.get("status") != status:
        return ""
    return get_str(found, "reason")


def _has_data_volume_error(view: View) -> bool:
    for data_volume in view.used_data_volumes:
        if get_str(data_volume, "status", "phase") == "Failed":
            return True
        running = meta.get_condition(data_volume, "Running")
        is_stopped = running is not None and running.get("status") == "False"
        if is_stopped and get_str(running, "reason") in ("Error", "ImagePullFailed"):
            return True
    return False


def _is_provisioning(view: View) -> bool:
    for data_volume in view.used_data_volumes:
        phase = get_str(data_volume, "status", "phase")
        if phase in ("Succeeded", "PendingPopulation"):
            continue
        if meta.is_condition_true(data_volume, "Bound") or phase != "WaitForFirstConsumer":
            return True
    return False


def _waits_for_binding(view: View) -> bool:
    if not strategy.is_set_to_start(view.vm, view.vmi):
        return False
    found = [view.claims[name] for name in view.used_claims if name in view.claims]
    return any(get_str(claim, "status", "phase") != "Bound" for claim in found)


def _is_starting(view: View) -> bool:
    if view.vmi is None:
        return view.expects_creation
    return phase_of(view.vmi) in _STARTING_PHASES


def _is_stopped(view: View) -> bool:
    return not view.expects_creation if view.vmi is None else is_final(view.vmi)


def _is_crash_looping(view: View) -> bool:
    if view.vmi is not None and not is_final(view.vmi):
        return False
    if view.expects_creation or get_int(view.vm, "status", "startFailure", "consecutiveFailCount") == 0:
        return False
    return strategy.run_strategy(view.vm) in strategy.BACKOFF_STRATEGIES


def _waits_for_receiver(view: View) -> bool:
    if strategy.run_strategy(view.vm) != "WaitAsReceiver":
        return False
    return view.vmi is None or phase_of(view.vmi) == "WaitingForSync"


_RULES = (
    ("Terminating", lambda view: meta.is_being_deleted(view.vm)),
    ("Stopping", _is_stopping),
    ("Migrating", _is_migrating),
    ("Paused", _is_paused),
    ("Running", _is_running),
    ("ErrorPvcNotFound", lambda view: _reason(view, "Synchronized") == "FailedPvcNotFound"),
    ("DataVolumeError", _has_data_volume_error),
    ("ErrorUnschedulable", lambda view: _reason(view, "PodScheduled") == "Unschedulable"),
    ("Provisioning", _is_provisioning),
    ("WaitingForVolumeBinding", _waits_for_binding),
    ("ErrImagePull", lambda view: _reason(view, "Synchronized") == "ErrImagePull"),
    ("ImagePullBackOff", lambda view: _reason(view, "Synchronized") == "ImagePullBackOff"),
    ("Starting", _is_starting),
    ("CrashLoopBackOff", _is_crash_looping),
    ("Stopped", _is_stopped),
    ("WaitingForReceiver", _waits_for_receiver),
)


def mirrored_conditions(
    before: list[JsonObject], vmi: JsonObject | None, error: SyncError | None
) -> list[JsonObject]:
    """The VM's conditions: its own, and its instance's word for word while there is one."""
    result = [dict(item) for item in before]
    if vmi is None:
        gone = conditions.new_condition("Ready", "False", "VMINotExists", "VMI does not exist", probed=True)
        conditions.put(result, gone)
    else:
        _copy_conditions(result, vmi)
    if error is None:
        conditions.drop(result, "Failure")
    else:
        conditions.put(result, conditions.new_condition("Failure", "True", error.reason, error.message))
    return result


def _copy_conditions(result: list[JsonObject], vmi: JsonObject) -> None:
    theirs = {get_str(item, "type"): item for item in meta.conditions(vmi)}
    for stale in [
        item for item in result if item["type"] not in _OWN_CONDITIONS and item["type"] not in theirs
    ]:
        result.remove(stale)
    for type, condition in theirs.items():
        existing = meta.find_condition(result, type)
        if existing is None:
            result.append(dict(condition))
        elif existing != condition:
            result[result.index(existing)] = dict(condition)
    if "Ready" not in theirs:
        text = "VMI is missing the Ready condition"
        missing = conditions.new_condition("Ready", "False", "VMIConditionMissing", text, probed=True)
        conditions.put(result, missing)
