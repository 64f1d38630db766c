"""Phases, conditions and progress of DataVolumes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cdi_claims import claim

from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.storage.cdi.controller.datavolume import conditions, flows
from virtplane.storage.cdi.controller.datavolume.conditions import Problem, State
from virtplane.storage.cdi.controller.datavolume.decisions import (
    Situation,
    may_adopt,
    phase,
    progress,
    uses_populator,
)

OWN = {"cdi.kubevirt.io/createdForDataVolume": "dv-uid"}
WAITS = StorageClass(volume_binding_mode="WaitForFirstConsumer")


def volume(current: str = "", source: str = "http", **metadata: Any) -> DataVolume:
    found = {"http": {"http": {"url": "http://x"}}, "upload": {"upload": {}}}
    return decode(
        DataVolume,
        {
            "metadata": {"name": "dv", "namespace": "ns", "uid": "dv-uid", **metadata},
            "spec": {"source": found[source]},
            "status": {"phase": current},
        },
    )


def own(claim_phase: str = "Bound", **annotations: str) -> PersistentVolumeClaim:
    named = {name.replace("_", "."): text for name, text in annotations.items()}
    return claim(phase=claim_phase, annotations={**OWN, **named})


def situation(
    current: str = "",
    found: PersistentVolumeClaim | None = None,
    prime: PersistentVolumeClaim | None = None,
    **members: Any,
) -> Situation:
    source = members.pop("source", "http")
    flow = flows.UPLOAD if source == "upload" else flows.IMPORT
    return Situation(volume(current, source), flow, found, prime, honors_waiting=True, **members)


def test_claims_without_worker_follow_the_claim() -> None:
    assert phase(situation()).name == "Pending"
    assert phase(situation("", own("Pending"))).name == "Pending"
    assert phase(situation("Pending", own("Bound"))).name == "PVCBound"
    assert phase(situation("", own("Odd"))).name == "Unknown"
    lost = phase(situation("ImportInProgress", own("Lost")))
    assert lost.name == "Failed"
    assert lost.notice is not None
    assert (lost.notice.reason, lost.notice.message) == ("ErrClaimLost", "PVC dv lost")


@pytest.mark.feature("STO-36")
def test_claims_wait_for_their_first_consumer_where_the_class_does() -> None:
    waiting = own("Pending")
    legacy = situation("", waiting, storage_class=WAITS)
    assert phase(legacy).name == "WaitForFirstConsumer"
    with_populator = situation("", waiting, storage_class=WAITS, uses_populator=True)
    assert phase(with_populator).name == "PendingPopulation"
    for given in ({"bind.immediate.requested": ""}, {"volume.kubernetes.io/selected-node": "n"}):
        ready = claim(phase="Pending", annotations={**OWN, **given})
        found = situation("PendingPopulation", ready, storage_class=WAITS, uses_populator=True)
        assert phase(found).name == "PendingPopulation"
        assert phase(situation("", ready, storage_class=WAITS)).name == "Pending"


@pytest.mark.feature("STO-45")
@pytest.mark.parametrize(
    ("worker", "name", "reason"),
    [
        ("Pending", "ImportScheduled", "ImportScheduled"),
        ("Running", "ImportInProgress", "ImportInProgress"),
        ("Failed", "ImportScheduled", "ImportFailed"),
        ("Succeeded", "Succeeded", "ImportSucceeded"),
    ],
)
def test_import_follows_its_pod(worker: str, name: str, reason: str) -> None:
    found = phase(situation("PVCBound", own(pod_phase=worker, **{"import.importPodName": "p"})))
    assert found.name == name
    assert found.notice is not None
    assert found.notice.reason == reason


def test_import_into_a_prime_claim_begins_once_that_is_bound() -> None:
    target = own("Pending", pod_phase="Running")
    pod = {"import.importPodName": "p"}
    for claim_phase, name in (("Pending", "Pending"), ("Bound", "ImportInProgress")):
        prime = claim("prime-1", phase=claim_phase, annotations=pod)
        found = situation("Pending", target, prime, uses_populator=True)
        assert phase(found).name == name


def test_import_into_a_prime_claim_has_succeeded_once_the_claim_has_the_volume() -> None:
    prime = claim("prime-1", annotations={"import.importPodName": "p", "pod.phase": "Succeeded"})
    waiting = situation("ImportInProgress", own("Pending", pod_phase="Succeeded"), prime, uses_populator=True)
    assert phase(waiting).name == "ImportInProgress"
    bound = situation("ImportInProgress", own("Bound", pod_phase="Succeeded"), None, uses_populator=True)
    assert phase(bound).name == "Succeeded"


def test_multi_stage_import_is_paused_only_when_the_stage_is_copied() -> None:
    target = own("Pending", pod_phase="Succeeded")
    stage = {"pod.phase": "Succeeded", "checkpoint.current": "one"}
    for more, name in (({}, "ImportInProgress"), ({"checkpoint.copied.one": "p"}, "Paused")):
        prime = claim("prime-1", annotations={**stage, **more})
        found = situation("ImportInProgress", target, prime, uses_populator=True)
        assert phase(found).name == name
        assert progress(found, phase(found), None) == ("100.0%" if name == "Paused" else "N/A")


def test_wrong_checksum_fails_for_good() -> None:
    found = own(pod_phase="Failed", **{"import.fatalError": "true", "import.importPodName": "p"})
    assert phase(situation("ImportInProgress", found)).name == "Failed"


def test_upload_is_ready_when_its_server_is() -> None:
    running = {"upload.target": "", "pod.phase": "Running"}
    for ready, name in (("false", "UploadScheduled"), ("true", "UploadReady")):
        found = claim(annotations={**OWN, **running, "pod.ready": ready})
        assert phase(situation("PVCBound", found, source="upload")).name == name


def test_claim_that_holds_the_content_needs_nothing() -> None:
    populated = claim(annotations={"populatedFor": "dv"})
    assert phase(situation("Pending", populated)).name == "Succeeded"
    adopted = claim(phase="Pending")
    assert phase(situation("Pending", adopted, may_adopt=True)).name == "Succeeded"
    assert phase(situation("Pending", adopted)).name == "Pending"


def test_success_does_not_hold_for_a_claim_that_came_later() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
    done = decode(
        DataVolume,
        {
            "metadata": {"name": "dv", "uid": "dv-uid"},
            "status": {"phase": "Succeeded", "conditions": [ready]},
        },
    )
    for made, name in (("2026-01-01T00:00:05Z", "Succeeded"), ("2026-01-01T00:01:00Z", "PVCBound")):
        found = claim(annotations=dict(OWN), creationTimestamp=made)
        assert phase(Situation(done, flows.IMPORT, found)).name == name


def test_annotations_choose_how_a_claim_is_filled_and_adopted() -> None:
    key = "cdi.kubevirt.io/storage.usePopulator"
    assert uses_populator(volume(annotations={key: "true"}), has_driver=False)
    assert not uses_populator(volume(annotations={key: "false"}), has_driver=True)
    assert uses_populator(volume(annotations={key: "odd"}), has_driver=True)
    allow = {"cdi.kubevirt.io/allowClaimAdoption": "false"}
    assert not may_adopt(volume(annotations=allow), gate=True)
    assert may_adopt(volume(), gate=True)


def test_conditions_say_where_the_claim_is() -> None:
    assert conditions.states("", None, False)[0] == State("Bound", "False", "NotFound", "No PVC found")
    quota = Problem("ErrExceededQuota", "full")
    assert conditions.states("Pending", None, False, quota)[:2] == (
        State("Bound", "False", "ErrExceededQuota", "full"),
        State("Ready", "False", "ErrExceededQuota", "full"),
    )
    assert conditions.states("", own(), False)[0] == State("Bound", "True", "Bound", "PVC dv Bound")
    assert conditions.states("", own("Lost"), False)[0].reason == "ClaimLost"
    waiting = own("Pending", condition_bound="false", **{"condition.bound.message": "[prime-1] : why"})
    assert conditions.states("", waiting, True)[0].message == "target PVC dv Pending and [prime-1] : why"
    assert conditions.states("", waiting, False)[0].message == "PVC dv Pending"


def test_running_worker_means_not_ready() -> None:
    running = own(condition_running="true", **{"condition.running.reason": "Pod is running"})
    states = conditions.states("ImportInProgress", running, False)
    assert states[1:] == (
        State("Ready", "False", "TransferRunning"),
        State("Running", "True", "Pod is running"),
    )
    nowhere = conditions.states("ImportScheduled", own(pod_schedulable="false"), False)
    assert (nowhere[2].reason, nowhere[2].message) == ("Unschedulable", "Importer pod cannot be scheduled")


def test_times_of_conditions_move_only_with_them() -> None:
    before = HeartbeatCondition(
        type="Ready", status="False", reason="a", last_heartbeat_time="t0", last_transition_time="t0"
    )
    same, other_reason, other_status = (
        conditions.documents([before], [state], "t1")[0]
        for state in (State("Ready", "False", "a"), State("Ready", "False", "b"), State("Ready", "True", "a"))
    )
    assert (same["lastHeartbeatTime"], same["lastTransitionTime"]) == ("t0", "t0")
    assert (other_reason["lastHeartbeatTime"], other_reason["lastTransitionTime"]) == ("t1", "t0")
    assert (other_status["lastHeartbeatTime"], other_status["lastTransitionTime"]) == ("t1", "t1")
