"""The table of run strategies: what start, stop and restart make of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceStatus
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.compute.apiserver.subresources import lifecycle, refusals


def _vm(strategy: str) -> JsonObject:
    return {"metadata": {"name": "vm"}, "spec": {"runStrategy": strategy}, "status": {}}


_RUNNING = VirtualMachineInstance(
    metadata=ObjectMeta(name="vm", uid="u"), status=VirtualMachineInstanceStatus(phase="Running")
)
_Request = Callable[[], lifecycle.Patch | None]


def _after(strategy: str, request: _Request) -> str:
    """The strategy after a request; `-` when it is refused."""
    try:
        patch = request()
    except StatusError as error:
        assert error.code == 409
        return "-"
    assert patch is not None
    changed: list[Any] = [item["value"] for item in patch.operations if item["path"] == "/spec/runStrategy"]
    return changed[-1] if changed else strategy


@pytest.mark.parametrize(
    ("strategy", "vmi", "start", "stop", "restart"),
    [
        pytest.param("Always", _RUNNING, "-", "Halted", "Always", marks=pytest.mark.feature("VML-06")),
        pytest.param("Manual", _RUNNING, "-", "Manual", "Manual", marks=pytest.mark.feature("VML-08")),
        pytest.param("Halted", None, "Always", "-", "-", marks=pytest.mark.feature("VML-09")),
    ],
)
def test_requests_change_the_strategy_as_the_table_says(
    strategy: str, vmi: VirtualMachineInstance | None, start: str, stop: str, restart: str
) -> None:
    vm = _vm(strategy)
    assert _after(strategy, lambda: lifecycle.start(vm, vmi, paused=False)) == start
    assert _after(strategy, lambda: lifecycle.stop(vm, vmi, grace_seconds=None)) == stop
    assert _after(strategy, lambda: lifecycle.restart(vm, vmi)) == restart


@pytest.mark.feature("VML-08")
def test_a_manual_machine_that_is_off_can_be_started_and_stays_manual() -> None:
    assert _after("Manual", lambda: lifecycle.start(_vm("Manual"), None, paused=False)) == "Manual"


@pytest.mark.feature("VML-13")
@pytest.mark.parametrize("strategy", ["Always", "Manual", "RerunOnFailure"])
def test_a_machine_whose_disks_are_still_imported_cannot_be_restarted(strategy: str) -> None:
    with pytest.raises(StatusError, match="VM is not running"):
        lifecycle.restart(_vm(strategy), None)


@pytest.mark.feature("VML-15")
def test_only_a_paused_guest_can_go_on() -> None:
    with pytest.raises(StatusError, match="VMI is not paused"):
        refusals.check_unpause(_RUNNING, None)
    paused = replace(
        _RUNNING,
        status=replace(_RUNNING.status, conditions=(Condition(type="Paused", status="True"),)),
    )
    refusals.check_unpause(paused, None)
    with pytest.raises(StatusError, match="VMI is already paused"):
        refusals.check_pause(paused)
    refusals.check_pause(_RUNNING)
