"""The status of a VM: printable status, conditions, and fields copied from its instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster import conditions
from virtplane.cluster.objects import condition_documents
from virtplane.compute import amounts
from virtplane.compute.controller.vm import strategy
from virtplane.compute.controller.vm.starting import GENERATION_ANNOTATION, generation_of_revision
from virtplane.compute.controller.vm.strategy import is_final

_OWN_CONDITIONS = ("Failure", "RestartRequired", "Ready", "Initialized", "ManualRecoveryRequired")
"""Conditions that are the VM's own, not copies of its instance's."""
_STARTING_PHASES = (None, "", "Pending", "Scheduling", "Scheduled")


@dataclass(frozen=True, slots=True)
class SyncError:
    """An error of the VM's reconcile, which the condition Failure shows."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class View:
    """The VM and the objects on which its printable status depends."""

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None = None
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    data_volumes: Mapping[str, DataVolume] = field(default_factory=dict)
    expects_creation: bool = False
    expects_deletion: bool = False

    @property
    def used_claims(self) -> list[str]:
        """The names of the claims of the template's volumes."""
        return [name for name in map(claim_name, self.vm.spec.instance.volumes) if name]

    @property
    def used_data_volumes(self) -> list[DataVolume]:
        """The DataVolumes that own these claims."""
        return [self.data_volumes[name] for name in self.used_claims if name in self.data_volumes]


def printable_status(view: View) -> str:
    """The printable status: the first rule that matches."""
    for word, holds in _RULES:
        if holds(view):
            return word
    return "Unknown"


def _is_running(view: View) -> bool:
    return view.vmi is not None and view.vmi.status.phase == "Running"


def _is_stopping(view: View) -> bool:
    if view.vmi is None or is_final(view.vmi):
        return False
    return view.vmi.metadata.is_being_deleted or view.expects_deletion


def is_migrating(vmi: VirtualMachineInstance) -> bool:
    """Whether a migration of the guest is in progress."""
    state = vmi.status.migration_state
    return state is not None and bool(state.start_timestamp) and not state.end_timestamp


def _is_migrating(view: View) -> bool:
    return view.vmi is not None and is_migrating(view.vmi)


def _is_paused(view: View) -> bool:
    return view.vmi is not None and _is_running(view) and is_true(view.vmi.status.conditions, "Paused")


def _reason(view: View, condition: str, status: str = "False") -> str:
    """The reason of a condition of the instance; none for an instance that has ended, which waits for
    nothing.
    """
    if view.vmi is None or is_final(view.vmi):
        return ""
    found = next((item for item in view.vmi.status.conditions if item.type == condition), None)
    return found.reason or "" if found is not None and found.status == status else ""


def _has_data_volume_error(view: View) -> bool:
    return any(
        data_volume.status.phase == "Failed"
        or any(
            (item.type, item.status) == ("Running", "False") and item.reason in ("Error", "ImagePullFailed")
            for item in data_volume.status.conditions
        )
        for data_volume in view.used_data_volumes
    )


def _is_provisioning(view: View) -> bool:
    for data_volume in view.used_data_volumes:
        phase = data_volume.status.phase
        if phase in ("Succeeded", "PendingPopulation"):
            continue
        if is_true(data_volume.status.conditions, "Bound") or phase != "WaitForFirstConsumer":
            return True
    return False


def _waits_for_binding(view: View) -> bool:
    if not strategy.is_set_to_start(view.vm, view.vmi):
        return False
    found = [view.claims[name] for name in view.used_claims if name in view.claims]
    return any(claim.status.phase != "Bound" for claim in found)


def _is_starting(view: View) -> bool:
    if view.vmi is None:
        return view.expects_creation
    return view.vmi.status.phase in _STARTING_PHASES


def _is_stopped(view: View) -> bool:
    return not view.expects_creation if view.vmi is None else is_final(view.vmi)


def _is_crash_looping(view: View) -> bool:
    if view.vmi is not None and not is_final(view.vmi):
        return False
    failure = view.vm.observed.start_failure
    if view.expects_creation or failure is None or not failure.consecutive_fail_count:
        return False
    return strategy.run_strategy(view.vm) in strategy.BACKOFF_STRATEGIES


def _waits_for_receiver(view: View) -> bool:
    if strategy.run_strategy(view.vm) != "WaitAsReceiver":
        return False
    return view.vmi is None or view.vmi.status.phase == "WaitingForSync"


_RULES = (
    ("Terminating", lambda view: view.vm.metadata.is_being_deleted),
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
    before: list[JsonObject], vmi: VirtualMachineInstance | None, error: SyncError | None
) -> list[JsonObject]:
    """The VM's conditions: its own, and copies of its instance's."""
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


def _copy_conditions(result: list[JsonObject], vmi: VirtualMachineInstance) -> None:
    theirs = {item["type"]: item for item in condition_documents(vmi.status.conditions)}
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


def generations(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> dict[str, int | None]:
    """``observedGeneration``, which the instance runs, and ``desiredGeneration``; None for one not known."""
    known, present = vm.observed, vm.metadata.generation
    if vmi is None:
        if known.observed_generation is not None:
            # The guest runs the current generation: clients that wait for a condition expect this as well.
            return {"observedGeneration": present, "desiredGeneration": present}
        return {"observedGeneration": None, "desiredGeneration": known.desired_generation}
    observed = amounts.whole(vmi.metadata.annotations.get(GENERATION_ANNOTATION, ""))
    if observed is None:
        observed = generation_of_revision(vmi.status.virtual_machine_revision_name or "")
    if observed is None:
        observed = known.observed_generation
    return {"observedGeneration": observed, "desiredGeneration": present}
