"""The phases of an instance until its node agent takes over."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vmi import phases
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.phases import Surroundings
from virtplane.compute.controller.vmi.storage import StorageState, storage_state


def _vmi(phase: str, **metadata: Any) -> JsonObject:
    return {
        "metadata": {"name": "vmi", "namespace": "ns", **metadata},
        "spec": {},
        "status": {"phase": phase},
    }


def _pod(phase: str = "Pending", running: bool = False, **metadata: Any) -> JsonObject:
    state: JsonObject = {"running": {}} if running else {"waiting": {}}
    status: dict[str, Any] = {"phase": phase, "containerStatuses": [{"name": "compute", "state": state}]}
    return {
        "metadata": {"name": "pod", "uid": "p1", **metadata},
        "spec": {"nodeName": "node", "containers": [{"name": "compute", "image": "i:1"}]},
        "status": status,
    }


def _read(document: JsonObject) -> VirtualMachineInstance:
    return decode(VirtualMachineInstance, document)


def _next(document: JsonObject, around: Surroundings) -> JsonObject:
    return phases.next_state(_read(document), document, around)


_DELETED = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("vmi", "around", "phase"),
    [
        (_vmi(""), Surroundings(None), "Pending"),
        (_vmi("Pending"), Surroundings(_pod()), "Scheduling"),
        (_vmi("Pending", deletionTimestamp=_DELETED), Surroundings(None), "Failed"),
        (_vmi("Pending"), Surroundings(None, storage=StorageState(failed_data_volume=True)), "Failed"),
        (_vmi("Scheduling"), Surroundings(_pod()), "Scheduling"),
        (_vmi("Scheduling"), Surroundings(_pod("Running", running=True)), "Scheduled"),
        (_vmi("Scheduling"), Surroundings(None), "Failed"),
        (_vmi("Scheduling"), Surroundings(_pod(deletionTimestamp=_DELETED)), "Failed"),
        (_vmi("Running"), Surroundings(_pod("Running", running=True)), "Running"),
        (_vmi("Running"), Surroundings(None), "Failed"),
        (_vmi("Succeeded"), Surroundings(None), "Succeeded"),
        (
            _vmi("Pending", annotations={"kubevirt.io/create-migration-target": "true"}),
            Surroundings(None),
            "WaitingForSync",
        ),
    ],
)
def test_the_phase_follows_the_launcher(vmi: JsonObject, around: Surroundings, phase: str) -> None:
    assert _next(vmi, around)["status"]["phase"] == phase


def test_a_scheduled_instance_knows_its_node() -> None:
    new = _next(_vmi("Scheduling"), Surroundings(_pod("Running", running=True)))
    assert meta.labels(new)[phases.NODE_LABEL] == "node"
    assert new["status"]["nodeName"] == "node"


def test_each_phase_is_dated_once() -> None:
    status: JsonObject = {}
    phases.set_phase(status, "Pending")
    phases.set_phase(status, "Pending")
    assert [item["phase"] for item in status["phaseTransitionTimestamps"]] == ["Pending"]


@pytest.mark.parametrize("written", ["much", "\N{SUPERSCRIPT TWO}", "-1", "9" * 5000, ""])
def test_an_overhead_that_is_no_number_is_left_out(written: str) -> None:
    """Whoever may change pods writes their annotations."""
    vmi = _vmi("Running")
    vmi["status"]["memory"] = {"guestAtBoot": "128Mi"}
    pod = _pod("Running", running=True, annotations={"kubevirt.io/memory-overhead-bytes": written})
    assert _next(vmi, Surroundings(pod, pods=(pod,)))["status"]["memory"] == {"guestAtBoot": "128Mi"}


def test_an_ended_instance_is_released_when_its_pods_are_gone() -> None:
    vmi = _vmi("Failed", finalizers=[phases.FOREGROUND_FINALIZER, phases.VM_FINALIZER])
    kept = _next(vmi, Surroundings(None, pods=(_pod(),)))
    assert len(meta.finalizers(kept)) == 2
    owned = _next(vmi, Surroundings(None, has_owner_vm=True))
    assert meta.finalizers(owned) == [phases.VM_FINALIZER]
    assert meta.finalizers(_next(vmi, Surroundings(None))) == []


def test_a_missing_claim_shows_as_unschedulable() -> None:
    error = SyncError("FailedPvcNotFound", "no claim", shows_unschedulable=True)
    new = _next(_vmi("Pending"), Surroundings(None, error=error))
    assert (meta.get_condition(new, "Synchronized") or {})["reason"] == "FailedPvcNotFound"
    assert (meta.get_condition(new, "PodScheduled") or {})["reason"] == "Unschedulable"


def test_an_image_that_cannot_be_pulled_is_told() -> None:
    pod = _pod()
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    pod["status"]["initContainerStatuses"] = [{"name": "volumeroot", "state": {"waiting": waiting}}]
    new = _next(_vmi("Scheduling"), Surroundings(pod))
    assert (meta.get_condition(new, "Synchronized") or {})["message"] == "not found"


def _with_volume(source: JsonObject) -> JsonObject:
    return {"spec": {"volumes": [{"name": "root", **source}]}}


@pytest.mark.feature("VMC-37", "VMC-89")
def test_a_data_volume_must_be_filled_and_its_claim_exist() -> None:
    vmi = _with_volume({"dataVolume": {"name": "disk"}})
    filling = {"disk": {"status": {"phase": "ImportInProgress"}}}
    bound = {"disk": {"status": {"phase": "Bound"}}}
    assert storage_state(_read(vmi), {}, {}).missing_claim == "disk"
    assert storage_state(_read(vmi), bound, filling).unready
    assert storage_state(_read(vmi), bound, {"disk": {"status": {"phase": "Succeeded"}}}).is_ready


def test_a_claim_that_waits_for_its_consumer_needs_a_stand_in() -> None:
    vmi = _with_volume({"dataVolume": {"name": "disk"}})
    waiting = {"disk": {"status": {"phase": "WaitForFirstConsumer"}}}
    assert storage_state(_read(vmi), {"disk": {"status": {"phase": "Pending"}}}, waiting).waits_for_consumer


def test_a_guest_that_was_waited_for_and_is_not_wanted_any_more_is_let_go() -> None:
    vmi = _vmi("WaitingForSync", finalizers=[phases.FOREGROUND_FINALIZER])
    assert meta.finalizers(_next(vmi, Surroundings(None))) == [phases.FOREGROUND_FINALIZER]
    vmi["metadata"]["deletionTimestamp"] = _DELETED
    assert meta.finalizers(_next(vmi, Surroundings(None))) == []
