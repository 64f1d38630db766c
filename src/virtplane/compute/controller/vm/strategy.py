"""Run strategies: whether the instance of a VM is to be started or stopped now."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.compute.controller.vmi.phases import RECEIVER_ANNOTATION, is_final

RESTORE_ANNOTATION = labels.RESTORE_RUN_STRATEGY
BACKOFF_STRATEGIES = ("Always", "RerunOnFailure", "Once")
"""Strategies under which repeated failures to start lead to waiting."""


class StrategyError(ValueError):
    """The VM's strategy cannot be told."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. At most one of `start` and `stop` is set."""

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


def run_strategy(vm: JsonObject) -> str:
    """The strategy that counts. Raises StrategyError when ``running`` and ``runStrategy`` are both set."""
    spec = get_object(vm, "spec")
    running, strategy = spec.get("running"), get_str(spec, "runStrategy")
    if running is not None and strategy:
        raise StrategyError("Running and RunStrategy are mutually exclusive")
    if strategy:
        return strategy
    return "Always" if running else "Halted"


def first_request(vm: JsonObject) -> JsonObject:
    """The request that counts: only the first one does."""
    requests = get_list(vm, "status", "stateChangeRequests")
    return requests[0] if requests else {}


def has_start_request(vm: JsonObject) -> bool:
    """Whether a user asked for a start."""
    return first_request(vm).get("action") == "Start"


def has_stop_request(vm: JsonObject, vmi: JsonObject) -> bool:
    """Whether a user asked to stop this very instance."""
    request = first_request(vm)
    return request.get("action") == "Stop" and request.get("uid") == meta.uid(vmi)


def open_requests(vm: JsonObject, vmi: JsonObject | None) -> list[JsonObject]:
    """The requests that are not yet fulfilled."""
    requests = get_list(vm, "status", "stateChangeRequests")
    while requests and _is_fulfilled(requests[0], vm, vmi):
        requests = requests[1:]
    return requests


def _is_fulfilled(request: JsonObject, vm: JsonObject, vmi: JsonObject | None) -> bool:
    if request.get("action") != "Stop":
        return vmi is not None and not is_final(vmi) and not meta.is_being_deleted(vmi)
    if vmi is None or request.get("uid") in (None, "") or request.get("uid") != meta.uid(vmi):
        return True
    # Under Once an instance that has ended stays, so nobody would ever take the request away.
    return get_str(vm, "spec", "runStrategy") == "Once" and is_final(vmi)


def decide(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float = 0) -> Decision:
    """What the VM's strategy asks for. `backoff_seconds` is the wait that failed starts still demand."""
    strategy = run_strategy(vm)
    rule = _RULES.get(strategy)
    if rule is None:
        return Decision(error=f"unknown runstrategy: {strategy}")
    return rule(vm, vmi, backoff_seconds)


def _stop(vmi: JsonObject) -> Decision:
    return NOTHING if meta.is_being_deleted(vmi) else Decision(stop=True)


def _start(backoff_seconds: float) -> Decision:
    return Decision(wait_seconds=backoff_seconds) if backoff_seconds > 0 else Decision(start=True)


def _always(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float) -> Decision:
    if vmi is None:
        return _start(backoff_seconds)
    if is_final(vmi) and _is_decentralized(vmi):
        completed = get_bool(vmi, "status", "migrationState", "completed")
        return Decision(new_strategy="Halted") if completed else Decision(wait_seconds=2)
    if has_stop_request(vm, vmi) or is_final(vmi):
        return _stop(vmi)
    return NOTHING


def _is_decentralized(vmi: JsonObject) -> bool:
    state = get_object(vmi, "status", "migrationState")
    sides = [bool(get_object(state, side).get("syncAddress")) for side in ("sourceState", "targetState")]
    return sides[0] != sides[1]


def _rerun_on_failure(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float) -> Decision:
    if vmi is None:
        is_switched_on = get_str(vm, "status", "runStrategy") != "RerunOnFailure"
        return _start(backoff_seconds) if has_start_request(vm) or is_switched_on else NOTHING
    if has_stop_request(vm, vmi) or is_final(vmi):
        if meta.is_being_deleted(vmi):
            return NOTHING
        return Decision(stop=True, rerun_after_stop=get_str(vmi, "status", "phase") == "Failed")
    return NOTHING


def _manual(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float) -> Decision:
    del backoff_seconds
    if vmi is None:
        return Decision(start=True) if has_start_request(vm) else NOTHING
    return _stop(vmi) if has_stop_request(vm, vmi) else NOTHING


def _halted(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float) -> Decision:
    del backoff_seconds
    if vmi is not None:
        return _stop(vmi)
    return Decision(new_strategy="Always") if has_start_request(vm) else NOTHING


def _once(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float) -> Decision:
    del vm
    return _start(backoff_seconds) if vmi is None else NOTHING


def _wait_as_receiver(vm: JsonObject, vmi: JsonObject | None, backoff_seconds: float) -> Decision:
    del backoff_seconds
    if vmi is None:
        return Decision(start=True, is_receiver=True)
    if meta.annotations(vmi).get(RECEIVER_ANNOTATION) == "true":
        return NOTHING
    if get_bool(vmi, "status", "migrationState", "completed"):
        return Decision(new_strategy=meta.annotations(vm).get(RESTORE_ANNOTATION, ""))
    return Decision(error="Found non receiver VMI while VM is receiver")


_RULES = {
    "Always": _always,
    "Halted": _halted,
    "Manual": _manual,
    "Once": _once,
    "RerunOnFailure": _rerun_on_failure,
    "WaitAsReceiver": _wait_as_receiver,
}


def is_set_to_start(vm: JsonObject, vmi: JsonObject | None) -> bool:
    """Whether the guest is to run sooner or later without a further request."""
    strategy = run_strategy(vm)
    if strategy == "Always":
        return True
    if strategy == "Manual":
        return not has_stop_request(vm, vmi) if vmi is not None else has_start_request(vm)
    if strategy == "RerunOnFailure":
        if vmi is not None:
            return get_str(vmi, "status", "phase") != "Succeeded"
        return has_start_request(vm) or get_str(vm, "status", "runStrategy") != strategy
    return strategy == "Once" and vmi is None
