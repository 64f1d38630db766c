"""Run strategies: whether to start or to stop the instance of a VM now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.patch.guarded import replacing, same_object
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStateChangeRequest
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.objects import described
from virtplane.compute.controller.vmi.phases import FINAL_PHASES

RESTORE_ANNOTATION = labels.RESTORE_RUN_STRATEGY
RECEIVER_ANNOTATION = labels.CREATE_MIGRATION_TARGET
BACKOFF_STRATEGIES = ("Always", "RerunOnFailure", "Once")
"""Strategies under which repeated failures to start lead to waiting."""


class StrategyError(ValueError):
    """The VM's run strategy is invalid."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision. At most one of `start` and `stop` is set."""

    start: bool = False
    stop: bool = False
    rerun_after_stop: bool = False
    """Remember that the guest is to be started again once the failed instance has gone."""
    new_strategy: str = ""
    """A strategy to write into the spec."""
    wait_seconds: float = 0
    """Look again after this time."""
    error: str = ""
    is_receiver: bool = False


NOTHING = Decision()


def is_final(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has ended."""
    return vmi.status.phase in FINAL_PHASES


def written_strategy(vm: VirtualMachine) -> str:
    """The run strategy for display: ``runStrategy``, else the one that ``running`` stands for."""
    return vm.spec.run_strategy or ("Always" if vm.spec.running else "Halted")


def run_strategy(vm: VirtualMachine) -> str:
    """The effective run strategy. Raises StrategyError if both ``running`` and ``runStrategy`` are set."""
    if vm.spec.running is not None and vm.spec.run_strategy:
        raise StrategyError("Running and RunStrategy are mutually exclusive")
    return written_strategy(vm)


def first_request(vm: VirtualMachine) -> VirtualMachineStateChangeRequest:
    """The first state change request; one without an action if there is none."""
    requests = vm.observed.state_change_requests
    return requests[0] if requests else VirtualMachineStateChangeRequest(action="")


def has_start_request(vm: VirtualMachine) -> bool:
    """Whether there is a start request."""
    return first_request(vm).action == "Start"


def has_stop_request(vm: VirtualMachine, vmi: VirtualMachineInstance) -> bool:
    """Whether there is a stop request for this very instance (by uid)."""
    request = first_request(vm)
    return request.action == "Stop" and request.uid == vmi.metadata.uid


def open_requests(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None
) -> Sequence[VirtualMachineStateChangeRequest]:
    """The requests that are not fulfilled yet."""
    requests = vm.observed.state_change_requests
    while requests and _is_fulfilled(requests[0], vm, vmi):
        requests = requests[1:]
    return requests


def _is_fulfilled(
    request: VirtualMachineStateChangeRequest, vm: VirtualMachine, vmi: VirtualMachineInstance | None
) -> bool:
    if request.action != "Stop":
        # An instance that has ended since was started, too: restarting it begins with its stop.
        return vmi is not None and not vmi.metadata.is_being_deleted
    if vmi is None or not request.uid or request.uid != vmi.metadata.uid:
        return True
    # Once acts on no stop request (this one was made under another strategy) and keeps an ended instance.
    # Nothing else would remove the request, and further stops are refused while it is open.
    return vm.spec.run_strategy == "Once"


def decide(vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float = 0) -> Decision:
    """Decide by the run strategy. `backoff_seconds` is the rest of the back-off after failed starts."""
    strategy = run_strategy(vm)
    rule = _RULES.get(strategy)
    if rule is None:
        return Decision(error=f"unknown runstrategy: {strategy}")
    return rule(vm, vmi, backoff_seconds)


def _stop(vmi: VirtualMachineInstance) -> Decision:
    return NOTHING if vmi.metadata.is_being_deleted else Decision(stop=True)


def _start(backoff_seconds: float) -> Decision:
    return Decision(wait_seconds=backoff_seconds) if backoff_seconds > 0 else Decision(start=True)


def _always(vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float) -> Decision:
    if vmi is None:
        return _start(backoff_seconds)
    if is_final(vmi) and _is_decentralized(vmi):
        return Decision(new_strategy="Halted") if _has_migrated(vmi) else Decision(wait_seconds=2)
    if has_stop_request(vm, vmi) or is_final(vmi):
        return _stop(vmi)
    return NOTHING


def _is_decentralized(vmi: VirtualMachineInstance) -> bool:
    state = vmi.status.migration_state
    if state is None:
        return False
    source, target = state.source_state, state.target_state
    return bool(source and source.sync_address) != bool(target and target.sync_address)


def _has_migrated(vmi: VirtualMachineInstance) -> bool:
    state = vmi.status.migration_state
    return state is not None and state.completed is True


def _rerun_on_failure(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float
) -> Decision:
    if vmi is None:
        is_switched_on = vm.observed.run_strategy != "RerunOnFailure"
        return _start(backoff_seconds) if has_start_request(vm) or is_switched_on else NOTHING
    if has_stop_request(vm, vmi) or is_final(vmi):
        if vmi.metadata.is_being_deleted:
            return NOTHING
        return Decision(stop=True, rerun_after_stop=vmi.status.phase == "Failed")
    return NOTHING


def _manual(vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float) -> Decision:
    del backoff_seconds
    if vmi is None:
        return Decision(start=True) if has_start_request(vm) else NOTHING
    return _stop(vmi) if has_stop_request(vm, vmi) else NOTHING


def _halted(vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float) -> Decision:
    del backoff_seconds
    if vmi is not None:
        return _stop(vmi)
    return Decision(new_strategy="Always") if has_start_request(vm) else NOTHING


def _once(vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float) -> Decision:
    del vm
    return _start(backoff_seconds) if vmi is None else NOTHING


def _wait_as_receiver(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, backoff_seconds: float
) -> Decision:
    del backoff_seconds
    if vmi is None:
        return Decision(start=True, is_receiver=True)
    if vmi.metadata.annotations.get(RECEIVER_ANNOTATION) == "true":
        return NOTHING
    if _has_migrated(vmi):
        return Decision(new_strategy=vm.metadata.annotations.get(RESTORE_ANNOTATION, ""))
    return Decision(error="Found non receiver VMI while VM is receiver")


_RULES = {
    "Always": _always,
    "Halted": _halted,
    "Manual": _manual,
    "Once": _once,
    "RerunOnFailure": _rerun_on_failure,
    "WaitAsReceiver": _wait_as_receiver,
}


def is_set_to_start(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Whether the guest will run without a further request."""
    strategy = run_strategy(vm)
    if strategy == "Always":
        return True
    if strategy == "Manual":
        return not has_stop_request(vm, vmi) if vmi is not None else has_start_request(vm)
    if strategy == "RerunOnFailure":
        if vmi is not None:
            return vmi.status.phase != "Succeeded"
        return has_start_request(vm) or vm.observed.run_strategy != strategy
    return strategy == "Once" and vmi is None


def new_strategy_patch(vm: VirtualMachine, strategy: str) -> list[JsonObject]:
    """The operations that set the run strategy, in the field that the VM uses."""
    tests = same_object(described(vm))
    if vm.spec.run_strategy:
        operation = replacing(tests, "/spec/runStrategy", vm.spec.run_strategy, strategy)
    else:
        operation = replacing(tests, "/spec/running", vm.spec.running, strategy == "Always")
    return [*tests, operation]
