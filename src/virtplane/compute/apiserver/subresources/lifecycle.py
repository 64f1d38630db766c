"""Start, stop and restart of VMs: the patches that they become, or why they are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kubecore import errors
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.subresources import refusals
from virtplane.compute.apiserver.subresources.refusals import machine_conflict

_UNDERWAY = "unable to complete request: stop/start already underway"


@dataclass(frozen=True, slots=True)
class Patch:
    """JSON patch operations for the VM, below its spec or its status."""

    target: Literal["spec", "status"]
    operations: tuple[JsonObject, ...]


def run_strategy(vm: JsonObject) -> str:
    """The strategy that counts for requests."""
    strategy = get_str(vm, "spec", "runStrategy")
    if strategy:
        return strategy
    return "Always" if get_object(vm, "spec").get("running") else "Halted"


def start(vm: JsonObject, vmi: VirtualMachineInstance | None, *, paused: bool) -> Patch | None:
    """The patch for a start request; None if nothing changes."""
    name = meta.name(vm)
    if refusals.is_live(vmi) and refusals.phase(vmi) not in ("", "Unknown"):
        raise machine_conflict(name, "VM is already running")
    if meta.is_condition_true(vm, "ManualRecoveryRequired"):
        text = "VM recovery required: the volume migration failed or was interrupted"
        raise machine_conflict(name, text)
    strategy = run_strategy(vm)
    request: JsonObject = {"action": "Start"}
    if paused:
        request["data"] = {"paused": "true"}
    if strategy == "Halted":
        return request_patch(vm, [request]) if paused else strategy_patch(vm, "Always")
    if strategy in ("RerunOnFailure", "Manual"):
        return _requested_start(vm, vmi, strategy, request)
    if strategy in ("Always", "Once"):
        raise machine_conflict(name, f"{strategy} does not support manual start requests")
    return None


def _requested_start(
    vm: JsonObject, vmi: VirtualMachineInstance | None, strategy: str, request: JsonObject
) -> Patch:
    if strategy == "RerunOnFailure" and refusals.phase(vmi) == "Failed":
        text = "RerunOnFailure does not support starting VM from failed state"
        raise machine_conflict(meta.name(vm), text)
    if vmi is not None and refusals.phase(vmi) in ("Succeeded", "Failed"):
        return request_patch(vm, [{"action": "Stop", "uid": vmi.metadata.uid}, request])
    return request_patch(vm, [request])


def stop(vm: JsonObject, vmi: VirtualMachineInstance | None, *, grace_seconds: int | None) -> Patch | None:
    """The patch for a stop request; None if nothing changes."""
    name, strategy = meta.name(vm), run_strategy(vm)
    is_live = refusals.is_live(vmi)
    if strategy in ("Always", "Once"):
        return strategy_patch(vm, "Halted")
    if strategy == "WaitAsReceiver":
        return None
    if vmi is None or not is_live:
        raise machine_conflict(name, "VM is not running")
    if strategy == "Halted" and not _is_shorter(vmi, grace_seconds):
        text = "Halted only supports manual stop requests with a shorter graceperiod"
        raise machine_conflict(name, text)
    return request_patch(vm, [{"action": "Stop", "uid": vmi.metadata.uid}])


def _is_shorter(vmi: VirtualMachineInstance, grace_seconds: int | None) -> bool:
    if grace_seconds is None:
        return False
    present = vmi.spec.termination_grace_period_seconds
    return grace_seconds < (30 if present is None else present)


def restart(vm: JsonObject, vmi: VirtualMachineInstance | None) -> Patch:
    """The patch for a restart request."""
    name, strategy = meta.name(vm), run_strategy(vm)
    if meta.is_condition_true(vm, "VolumesChange"):
        text = "VM recovery required: volumes are being migrated"
        raise machine_conflict(name, text)
    if strategy in ("Halted", "Once"):
        raise machine_conflict(name, f"RunStategy {strategy} does not support manual restart requests")
    if vmi is None:
        raise machine_conflict(name, "VM is not running: Halted")
    return request_patch(vm, [{"action": "Stop", "uid": vmi.metadata.uid}, {"action": "Start"}])


def check_restart_grace(seconds: int | None) -> None:
    """Raises for a grace period that restarts do not support."""
    if seconds is None:
        return
    if seconds > 0:
        raise errors.bad_request("For force restart, only gracePeriod=0 is supported for now")
    if seconds < 0:
        raise errors.bad_request("gracePeriod has to be greater or equal to 0")


def grace_operations(vmi: VirtualMachineInstance, seconds: int) -> list[JsonObject]:
    """Operations that set an instance's grace period."""
    path = "/spec/terminationGracePeriodSeconds"
    present = vmi.spec.termination_grace_period_seconds
    if present is None:
        return [{"op": "add", "path": path, "value": seconds}]
    return [{"op": "test", "path": path, "value": present}, {"op": "replace", "path": path, "value": seconds}]


def strategy_patch(vm: JsonObject, strategy: str) -> Patch:
    """Switches the VM on or off in its spec."""
    spec = get_object(vm, "spec")
    if get_str(spec, "runStrategy"):
        path, value, present = "/spec/runStrategy", strategy, spec["runStrategy"]
        return Patch("spec", _replace(path, present, value))
    running = strategy == "Always"
    if "running" in spec:
        return Patch("spec", _replace("/spec/running", spec["running"], running))
    return Patch("spec", ({"op": "add", "path": "/spec/running", "value": running},))


def _replace(path: str, present: object, value: object) -> tuple[JsonObject, ...]:
    return ({"op": "test", "path": path, "value": present}, {"op": "replace", "path": path, "value": value})


def _add(path: str, present: object, value: object) -> tuple[JsonObject, ...]:
    return ({"op": "test", "path": path, "value": present}, {"op": "add", "path": path, "value": value})


def request_patch(vm: JsonObject, requests: list[JsonObject]) -> Patch:
    """Notes requests for the controller in the VM's status.

    Raises StatusError when others wait already: only a stop in progress may be followed by a start. One that
    comes between makes the patch fail: an absent member equals null in its test.
    """
    status = get_object(vm, "status")
    if not status:
        value = {"stateChangeRequests": requests}
        return Patch("status", _add("/status", vm.get("status"), value))
    path = "/status/stateChangeRequests"
    waiting = get_list(status, "stateChangeRequests")
    operations: list[JsonObject] = []
    if not waiting:
        operations = list(_add(path, status.get("stateChangeRequests"), requests))
    elif len(waiting) == 1 and len(requests) == 1 and _follows(waiting[0], requests[0]):
        operations = list(_replace(path, waiting, [*waiting, *requests]))
    else:
        raise refusals.internal(_UNDERWAY)
    if "startFailure" in status:
        operations.append({"op": "remove", "path": "/status/startFailure"})
    return Patch("status", tuple(operations))


def _follows(first: JsonObject, second: JsonObject) -> bool:
    return first.get("action") == "Stop" and second.get("action") == "Start"
