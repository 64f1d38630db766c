"""Guests that never come up are started ever more slowly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vm import (
    VirtualMachine,
    VirtualMachineInstanceTemplateSpec,
    VirtualMachineSpec,
)
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStartFailure, VirtualMachineStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm import failures

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _vm(failure: VirtualMachineStartFailure | None) -> VirtualMachine:
    spec = VirtualMachineSpec(template=VirtualMachineInstanceTemplateSpec())
    return VirtualMachine(spec=spec, status=VirtualMachineStatus(start_failure=failure))


def _vmi(uid: str, *phases: str) -> VirtualMachineInstance:
    transitions = [{"phase": phase} for phase in phases]
    status: dict[str, Any] = {"phase": phases[-1], "phaseTransitionTimestamps": transitions}
    return decode(VirtualMachineInstance, {"metadata": {"uid": uid}, "status": status})


def test_delays_grow_with_the_square_of_failures_up_to_five_minutes() -> None:
    assert [failures.delay_seconds(count, 0) for count in (1, 2, 3, 10)] == [10, 40, 90, 300]
    assert failures.delay_seconds(2, 1.0) == 60


def test_a_guest_that_failed_before_it_ran_counts_once() -> None:
    first = failures.next_failure(_vm(None), _vmi("a", "Pending", "Failed"), "Always", _NOW, jitter=0)
    assert first == VirtualMachineStartFailure(
        consecutive_fail_count=1, last_failed_vmiuid="a", retry_after_timestamp="2026-01-01T00:00:10Z"
    )
    vm = _vm(first)
    assert failures.next_failure(vm, _vmi("a", "Pending", "Failed"), "Always", _NOW, jitter=0) == first
    assert failures.remaining_seconds(vm, _NOW) == 10


def test_a_guest_that_ran_clears_the_count() -> None:
    vm = _vm(VirtualMachineStartFailure(consecutive_fail_count=3))
    assert failures.next_failure(vm, _vmi("b", "Pending", "Running"), "Always", _NOW) is None


def test_strategies_that_do_not_restart_keep_no_count() -> None:
    vm = _vm(VirtualMachineStartFailure(consecutive_fail_count=3))
    assert failures.next_failure(vm, None, "Halted", _NOW) is None
