"""What users see of a VM."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeStatus
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.storage_kinds import PersistentVolumeClaim, PersistentVolumeClaimStatus
from virtplane.compute.controller.vm import status
from virtplane.compute.controller.vm.status import SyncError, View


def _vm(run_strategy: str = "Always", **more: Any) -> VirtualMachine:
    volumes = [{"name": "root", "dataVolume": {"name": "disk"}}]
    template = {"spec": {"volumes": volumes}}
    spec = {"runStrategy": run_strategy, "template": template}
    metadata = {"name": "vm", **more.pop("metadata", {})}
    return decode(VirtualMachine, {"metadata": metadata, "spec": spec, "status": more})


def _vmi(phase: str, *conditions: JsonObject, **more: Any) -> VirtualMachineInstance:
    metadata = {"name": "vm", **more.pop("metadata", {})}
    status = {"phase": phase, "conditions": list(conditions), **more}
    return decode(VirtualMachineInstance, {"metadata": metadata, "status": status})


def _condition(type: str, value: str, reason: str = "") -> JsonObject:
    return {"type": type, "status": value, "reason": reason}


def _filled(phase: str) -> dict[str, DataVolume]:
    return {"disk": DataVolume(status=DataVolumeStatus(phase=phase))}


_PENDING = {"disk": PersistentVolumeClaim(status=PersistentVolumeClaimStatus(phase="Pending"))}
_DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("view", "word"),
    [
        (View(_vm(metadata=_DELETED), _vmi("Running")), "Terminating"),
        (View(_vm(), _vmi("Running", metadata=_DELETED)), "Stopping"),
        (View(_vm(), _vmi("Running", migrationState={"startTimestamp": "x"})), "Migrating"),
        (View(_vm(), _vmi("Running", _condition("Paused", "True"))), "Paused"),
        (View(_vm(), _vmi("Running")), "Running"),
        (
            View(_vm(), _vmi("Pending", _condition("Synchronized", "False", "FailedPvcNotFound"))),
            "ErrorPvcNotFound",
        ),
        (View(_vm(), data_volumes=_filled("Failed")), "DataVolumeError"),
        (
            View(_vm(), _vmi("Scheduling", _condition("PodScheduled", "False", "Unschedulable"))),
            "ErrorUnschedulable",
        ),
        (View(_vm(), data_volumes=_filled("ImportInProgress")), "Provisioning"),
        (View(_vm(), claims=_PENDING), "WaitingForVolumeBinding"),
        (
            View(_vm(), _vmi("Scheduling", _condition("Synchronized", "False", "ErrImagePull"))),
            "ErrImagePull",
        ),
        (
            View(_vm(), _vmi("Scheduling", _condition("Synchronized", "False", "ImagePullBackOff"))),
            "ImagePullBackOff",
        ),
        (
            View(_vm("Once"), _vmi("Failed", _condition("PodScheduled", "False", "Unschedulable"))),
            "Stopped",
        ),
        (View(_vm(), _vmi("Scheduling")), "Starting"),
        (View(_vm(), expects_creation=True), "Starting"),
        (View(_vm(startFailure={"consecutiveFailCount": 1})), "CrashLoopBackOff"),
        (View(_vm("Halted")), "Stopped"),
        (View(_vm(), _vmi("Succeeded")), "Stopped"),
        (View(_vm("WaitAsReceiver"), _vmi("WaitingForSync")), "WaitingForReceiver"),
        (View(_vm(), _vmi("Odd")), "Unknown"),
    ],
)
def test_the_first_rule_that_holds_gives_the_printable_status(view: View, word: str) -> None:
    assert status.printable_status(view) == word


@pytest.mark.feature("VMC-91")
def test_an_instances_conditions_are_copied_and_forgotten_with_it() -> None:
    vmi = _vmi("Running", _condition("Ready", "True"), _condition("AgentConnected", "True"))
    copied = status.mirrored_conditions([], vmi, None)
    assert {item["type"] for item in copied} == {"Ready", "AgentConnected"}
    without = status.mirrored_conditions(copied, _vmi("Running", _condition("Ready", "True")), None)
    assert [item["type"] for item in without] == ["Ready"]


def test_a_vm_without_instance_is_not_ready_and_says_why() -> None:
    (ready,) = status.mirrored_conditions([], None, None)
    assert (ready["status"], ready["reason"]) == ("False", "VMINotExists")


def test_an_error_shows_as_failure_until_it_is_over() -> None:
    failed = status.mirrored_conditions([], None, SyncError("FailedCreate", "no"))
    assert failed[1]["type"] == "Failure"
    assert [item["type"] for item in status.mirrored_conditions(failed, None, None)] == ["Ready"]


@pytest.mark.parametrize("noted", ["much", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_a_generation_that_is_no_number_is_read_from_the_revision(noted: str) -> None:
    """Users write their instances' annotations: what is there must not stop the machine's controller."""
    annotations = {"kubevirt.io/vm-generation": noted}
    vmi = _vmi(
        "Running", virtualMachineRevisionName="revision-start-vm-u-3", metadata={"annotations": annotations}
    )
    found = status.generations(_vm(metadata={"generation": 5}), vmi)
    assert found == {"observedGeneration": 3, "desiredGeneration": 5}
