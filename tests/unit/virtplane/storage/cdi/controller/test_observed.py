"""What the status of a worker pod means for its claim."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.cdi_claims import STORAGE, claim, ended, pod, pod_status

from kubecore.objects.structs import decode
from virtplane.storage.cdi.controller.workers.observed import (
    is_evicted,
    of_importer,
    of_upload_server,
    simplified,
)
from virtplane.storage.cdi.controller.workers.pods import Pod, Terminated, termination


def waiting(reason: str, message: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def said(pod: Pod, **annotations: str) -> dict[str, str | None]:
    found = of_importer(claim(annotations=annotations), pod)
    return {name.removeprefix(STORAGE): value for name, value in found.annotations.items()}


def test_running_pod_runs() -> None:
    found = said(pod(state={"running": {}}))
    assert (found["condition.running"], found["condition.running.reason"]) == ("true", "Pod is running")
    assert (found["pod.phase"], found["import.importPodName"]) == ("Running", "importer-dv")


@pytest.mark.parametrize(
    ("state", "reason", "message"),
    [
        (waiting("ErrImagePull", "x"), "ImagePullFailed", "failed to pull image: importer:1"),
        (waiting("CreateContainerConfigError", "no map"), "CreateContainerConfigError", "no map"),
        (waiting("CrashLoopBackOff", "x"), "", ""),
        (ended("it broke", code=1, reason="Error"), "Error", "it broke"),
        (
            ended("failed to pull image: no such tag", code=1, reason="Error"),
            "ImagePullFailed",
            "failed to pull image: no such tag",
        ),
        (ended(), "Completed", "Import Complete"),
    ],
)
def test_pod_that_does_not_run_says_why(state: dict[str, Any], reason: str, message: str) -> None:
    found = said(pod("Pending", state=state))
    assert found["condition.running"] == "false"
    assert (found["condition.running.reason"], found["condition.running.message"]) == (reason, message)


def test_image_beside_the_importer_that_does_not_come_is_a_failure() -> None:
    status = pod_status("Running", {"running": {}})["status"]
    server = {"name": "server", "image": "disk:1", "state": waiting("ImagePullBackOff", "")}
    status["containerStatuses"].append(server)
    found = said(decode(Pod, {"metadata": {"name": "p"}, "status": status}))
    assert found["condition.running.message"] == "failed to pull image: disk:1"


def test_worker_that_needs_scratch_space_starts_anew_but_only_once() -> None:
    needs = ended({"scratchSpaceRequired": True, "message": ""})
    found = of_importer(claim(), pod("Succeeded", state=needs))
    assert found.must_start_anew
    assert found.annotations[STORAGE + "import.requiresScratch"] == "true"
    assert STORAGE + "pod.phase" not in found.annotations
    scratch = {"volumes": [{"persistentVolumeClaim": {"claimName": "dv-scratch"}}]}
    metadata = {"name": "p", "namespace": "ns"}
    again = of_importer(claim(), pod("Succeeded", state=needs, spec=scratch, metadata=metadata))
    assert not again.must_start_anew


def test_worker_without_memory_starts_anew_with_direct_writes_but_only_once() -> None:
    killed = pod(state=ended("", code=137, reason="OOMKilled"))
    found = of_importer(claim(), killed)
    assert found.must_start_anew
    assert found.annotations[STORAGE + "import.requiresDirectIo"] == "true"
    assert not of_importer(claim(annotations={"import.requiresDirectIo": "true"}), killed).must_start_anew


def test_wrong_checksum_is_final() -> None:
    message = "Unable to process data: checksum validation failed: checksum mismatch: expected md5:a"
    found = of_importer(claim(), pod("Succeeded", state=ended({"message": message})))
    assert found.is_done
    assert found.failure == message
    assert found.annotations[STORAGE + "import.fatalError"] == "true"
    assert found.annotations[STORAGE + "pod.phase"] == "Failed"
    assert found.annotations[STORAGE + "condition.running.reason"] == "ChecksumError"


def test_success_tells_of_preallocation_vddk_and_labels() -> None:
    text = {
        "message": "Import Complete",
        "preallocationApplied": True,
        "vddkInfo": {"Version": "8", "Host": "esx"},
        "labels": {"a.kubevirt.io/b": "c", "bad key": "x", "d": "no good!", "e": 5},
    }
    found = of_importer(claim(), pod("Succeeded", state=ended(text)))
    assert found.is_done
    assert found.annotations[STORAGE + "preallocation"] == "true"
    assert found.annotations[STORAGE + "pod.vddk.host"] == "esx"
    assert found.labels == {"a.kubevirt.io/b": "c"}


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "{", "[" * 4000, json.dumps({"message": 1, "labels": [], "vddkInfo": "x"})]
)
def test_nothing_that_a_worker_says_breaks_the_controller(text: str) -> None:
    found = termination(Terminated(message=text))
    assert not found.scratch_space_required
    assert isinstance(found.message, str)


@pytest.mark.parametrize(
    "text",
    ["x is larger than the reported available y", "write: no space left on device", "disk quota exceeded"],
)
def test_full_volume_has_one_name(text: str) -> None:
    assert simplified(text) == "DataVolume too small to contain image"
    assert simplified("404") == "404"


def test_restarts_never_fall_and_nonsense_counts_as_none() -> None:
    assert said(pod(state={"running": {}}), **{"pod.restarts": "7"})["pod.restarts"] == "7"
    assert said(pod(state={"running": {}}), **{"pod.restarts": "many"})["pod.restarts"] == "0"


def test_pod_that_finds_no_node_is_unschedulable() -> None:
    nowhere = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    assert said(pod(status={"phase": "Pending", "conditions": [nowhere]}))["pod.schedulable"] == "false"
    assert said(pod(status={"phase": "Succeeded", "conditions": [nowhere]}))["pod.schedulable"] == "true"
    assert said(pod())["pod.schedulable"] == "true"


def test_evicted_pod_is_no_failed_worker() -> None:
    assert is_evicted(pod(status={"phase": "Failed", "reason": "Evicted"}))
    assert not is_evicted(pod("Failed", state=ended("x", code=1)))


def test_upload_server_is_ready_when_its_container_is() -> None:
    ready = decode(Pod, pod_status("Running", {"running": {}}, "cdi-upload-server"))
    assert of_upload_server(claim(), ready).annotations[STORAGE + "pod.ready"] == "true"


def test_upload_server_with_old_certificates_starts_anew() -> None:
    state = ended({"deadlinePassed": True, "message": "Deadline Passed"})
    found = of_upload_server(claim(), decode(Pod, pod_status("Succeeded", state, "cdi-upload-server")))
    assert found.must_start_anew
    assert found.annotations[STORAGE + "pod.phase"] is None


def test_stage_remembers_its_pod() -> None:
    found = said(pod(state={"running": {}}), **{"checkpoint.current": "one"})
    assert found["checkpoint.pod.id"] == "2"
