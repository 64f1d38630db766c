"""Start, stop and restart requests, and what refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.subresources import lifecycle


def _vm(strategy: str, **status: Any) -> JsonObject:
    status = {"printableStatus": "Stopped", **status}
    return {"metadata": {"name": "vm"}, "spec": {"runStrategy": strategy}, "status": status}


def _vmi(phase: str, **spec: Any) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": "vm", "uid": "u"},
        "spec": {"domain": {"devices": {}}, **spec},
        "status": {"phase": phase},
    }
    return decode(VirtualMachineInstance, document)


def _values(patch: lifecycle.Patch | None) -> Any:
    assert patch is not None
    return patch.target, patch.operations[-1].get("value")


_START = {"action": "Start"}
_STOP = {"action": "Stop", "uid": "u"}


def test_a_halted_vm_is_started_by_its_strategy_and_paused_by_a_request() -> None:
    assert _values(lifecycle.start(_vm("Halted"), None, paused=False)) == ("spec", "Always")
    paused = {"action": "Start", "data": {"paused": "true"}}
    assert _values(lifecycle.start(_vm("Halted"), None, paused=True)) == ("status", [paused])


def test_manual_vms_are_started_by_requests() -> None:
    assert _values(lifecycle.start(_vm("Manual"), None, paused=False)) == ("status", [_START])
    again = lifecycle.start(_vm("Manual"), _vmi("Failed"), paused=False)
    assert _values(again) == ("status", [_STOP, _START])


@pytest.mark.parametrize(
    ("vm", "vmi", "text"),
    [
        (_vm("Always"), None, "Always does not support manual start requests"),
        (_vm("Once"), None, "Once does not support manual start requests"),
        (_vm("Manual"), _vmi("Running"), "VM is already running"),
        (
            _vm("RerunOnFailure"),
            _vmi("Failed"),
            "RerunOnFailure does not support starting VM from failed state",
        ),
    ],
)
def test_starts_that_make_no_sense_are_conflicts(
    vm: JsonObject, vmi: VirtualMachineInstance | None, text: str
) -> None:
    with pytest.raises(StatusError) as refused:
        lifecycle.start(vm, vmi, paused=False)
    assert refused.value.code == 409
    assert refused.value.message.endswith(text)


def test_stopping_switches_the_strategy_or_asks_for_this_very_instance() -> None:
    assert _values(lifecycle.stop(_vm("Always"), None, grace_seconds=None)) == ("spec", "Halted")
    asked = lifecycle.stop(_vm("Manual"), _vmi("Running"), grace_seconds=None)
    assert _values(asked) == ("status", [_STOP])
    assert lifecycle.stop(_vm("WaitAsReceiver"), None, grace_seconds=None) is None


def test_a_halted_vm_that_still_stops_can_only_be_hurried() -> None:
    running = _vmi("Running", terminationGracePeriodSeconds=60)
    with pytest.raises(StatusError, match="shorter graceperiod"):
        lifecycle.stop(_vm("Halted"), running, grace_seconds=60)
    assert lifecycle.stop(_vm("Halted"), running, grace_seconds=5) is not None


def test_a_restart_is_a_stop_and_a_start_and_clears_the_count_of_failures() -> None:
    patch = lifecycle.restart(_vm("Always", startFailure={"consecutiveFailCount": 1}), _vmi("Running"))
    assert patch.operations[1]["value"] == [_STOP, _START]
    assert patch.operations[2] == {"op": "remove", "path": "/status/startFailure"}
    with pytest.raises(StatusError, match="VM is not running: Halted"):
        lifecycle.restart(_vm("Always"), None)
    with pytest.raises(StatusError, match="RunStategy Once does not support"):
        lifecycle.restart(_vm("Once"), _vmi("Running"))


def test_a_second_request_waits_for_the_first() -> None:
    with pytest.raises(StatusError, match="stop/start already underway"):
        lifecycle.restart(_vm("Always", stateChangeRequests=[_STOP]), _vmi("Running"))


@pytest.mark.parametrize("status", [None, {}, {"printableStatus": "Stopped"}, {"stateChangeRequests": []}])
def test_requests_of_two_users_at_once_do_not_overwrite_each_other(status: JsonObject | None) -> None:
    """Both have read the machine before either wrote: the second patch must not apply."""
    vm = {**_vm("Manual"), "status": status}
    if status is None:
        del vm["status"]
    vmi = _vmi("Failed")
    first, second = lifecycle.start(vm, vmi, paused=False), lifecycle.start(vm, None, paused=True)
    assert first is not None and second is not None
    written = apply_json_patch(deep_copy(vm), list(first.operations))
    assert written["status"]["stateChangeRequests"] == [_STOP, _START]
    with pytest.raises(JsonPatchError, match="test"):
        apply_json_patch(written, list(second.operations))


def test_only_immediate_forced_restarts_are_supported() -> None:
    lifecycle.check_restart_grace(0)
    for seconds in (5, -1):
        with pytest.raises(StatusError):
            lifecycle.check_restart_grace(seconds)
