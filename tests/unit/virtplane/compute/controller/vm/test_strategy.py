"""Run strategies decide when a VM's instance is started and stopped."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm import strategy
from virtplane.compute.controller.vm.strategy import NOTHING, Decision


def _vm(run_strategy: str, **status: Any) -> VirtualMachine:
    spec = {"runStrategy": run_strategy, "template": {}}
    return decode(VirtualMachine, {"metadata": {"name": "vm"}, "spec": spec, "status": status})


def _vmi(phase: str, **status: Any) -> VirtualMachineInstance:
    document = {"metadata": {"name": "vm", "uid": "u1"}, "status": {"phase": phase, **status}}
    return decode(VirtualMachineInstance, document)


_STOP = [{"action": "Stop", "uid": "u1"}]
_START = [{"action": "Start"}]


@pytest.mark.parametrize(
    ("vm", "vmi", "expected"),
    [
        (_vm("Always"), None, Decision(start=True)),
        (_vm("Always"), _vmi("Running"), NOTHING),
        (_vm("Always"), _vmi("Succeeded"), Decision(stop=True)),
        (_vm("Always", stateChangeRequests=_STOP), _vmi("Running"), Decision(stop=True)),
        (_vm("Halted"), _vmi("Running"), Decision(stop=True)),
        (_vm("Halted"), None, NOTHING),
        (_vm("Halted", stateChangeRequests=_START), None, Decision(new_strategy="Always")),
        (_vm("Manual"), None, NOTHING),
        (_vm("Manual", stateChangeRequests=_START), None, Decision(start=True)),
        (_vm("Manual"), _vmi("Failed"), NOTHING),
        (_vm("Manual", stateChangeRequests=_STOP), _vmi("Running"), Decision(stop=True)),
        (_vm("RerunOnFailure"), None, Decision(start=True)),
        (_vm("RerunOnFailure", runStrategy="RerunOnFailure"), None, NOTHING),
        (_vm("RerunOnFailure"), _vmi("Failed"), Decision(stop=True, rerun_after_stop=True)),
        (_vm("RerunOnFailure"), _vmi("Succeeded"), Decision(stop=True)),
        (_vm("Once"), None, Decision(start=True)),
        (_vm("Once"), _vmi("Failed"), NOTHING),
        (_vm("WaitAsReceiver"), None, Decision(start=True, is_receiver=True)),
    ],
)
@pytest.mark.feature("VML-02", "VML-03", "VML-04", "VML-05")
def test_a_strategy_starts_and_stops_as_users_expect(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, expected: Decision
) -> None:
    assert strategy.decide(vm, vmi) == expected


def test_failed_starts_make_the_next_one_wait() -> None:
    assert strategy.decide(_vm("Always"), None, backoff_seconds=12) == Decision(wait_seconds=12)


def test_an_unknown_strategy_is_an_error_that_names_it() -> None:
    assert strategy.decide(_vm("Sometimes"), None).error == "unknown runstrategy: Sometimes"


@pytest.mark.feature("VML-01")
def test_both_ways_to_say_it_at_once_are_refused() -> None:
    spec = {"running": True, "runStrategy": "Always", "template": {}}
    vm = decode(VirtualMachine, {"spec": spec})
    with pytest.raises(strategy.StrategyError):
        strategy.run_strategy(vm)


def _open(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> list[str]:
    return [request.action for request in strategy.open_requests(vm, vmi)]


def test_a_stop_request_for_an_instance_that_is_gone_is_fulfilled_and_the_start_behind_it_waits() -> None:
    vm = _vm("Manual", stateChangeRequests=[{"action": "Stop", "uid": "old"}, {"action": "Start"}])
    assert _open(vm, None) == ["Start"]


@pytest.mark.parametrize("phase", ["Scheduling", "Running", "Failed"])
def test_a_start_request_is_fulfilled_by_an_instance_even_if_that_ended_at_once(phase: str) -> None:
    assert _open(_vm("Manual", stateChangeRequests=_START), _vmi(phase)) == []


def test_a_start_in_place_of_an_ended_instance_waits_behind_its_stop() -> None:
    requests = [*_STOP, *_START]
    assert _open(_vm("Manual", stateChangeRequests=requests), _vmi("Failed")) == ["Stop", "Start"]


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_stop_request_is_dropped_under_once_which_never_stops_an_instance(phase: str) -> None:
    assert _open(_vm("Manual", stateChangeRequests=_STOP), _vmi(phase)) == ["Stop"]
    assert _open(_vm("Once", stateChangeRequests=_STOP), _vmi(phase)) == []


@pytest.mark.parametrize(
    ("spec", "path", "before", "after"),
    [
        ({"runStrategy": "WaitAsReceiver"}, "/spec/runStrategy", "WaitAsReceiver", "Always"),
        ({"running": False}, "/spec/running", False, True),
        ({}, "/spec/running", None, True),
    ],
)
def test_a_new_strategy_is_written_in_the_way_in_which_there_was_one(
    spec: dict[str, Any], path: str, before: object, after: object
) -> None:
    vm = decode(VirtualMachine, {"metadata": {"uid": "u"}, "spec": {"template": {}, **spec}})
    op = "add" if before is None else "replace"
    assert strategy.new_strategy_patch(vm, "Always") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": path, "value": before},
        {"op": op, "path": path, "value": after},
    ]
