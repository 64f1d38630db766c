"""Claims that name a source: prime claims, what is mirrored, and how their volumes change hands."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cdi_claims import STORAGE, ended, pod_status
from tests.support.cdi_memory import GIB, NAMESPACE, MemoryCluster, memory_cluster
from tests.support.waiting import until

from kubecore import resources as core
from kubecore.json import JsonObject, get_str
from virtplane.api import resources as kinds
from virtplane.storage.cdi.controller.populators.claim_events import Event, to_pass_on

CLAIMS = core.PERSISTENT_VOLUME_CLAIMS
BLANK: JsonObject = {"source": {"blank": {}}}


def put_source(cluster: MemoryCluster, spec: JsonObject, kind: str = "VolumeImportSource") -> None:
    known = {each.kind: each for each in (kinds.VOLUME_IMPORT_SOURCES, kinds.VOLUME_UPLOAD_SOURCES)}
    cluster.api.put(known[kind], {"metadata": {"name": "src", "namespace": NAMESPACE}, "spec": spec})


def put_target(
    cluster: MemoryCluster, storage_class: str = "csi", kind: str = "VolumeImportSource", **metadata: Any
) -> str:
    """A claim that names the source; the name of its prime claim."""
    reference = {"apiGroup": "cdi.kubevirt.io", "kind": kind, "name": "src"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": GIB, "storageClassName": storage_class}
    made = cluster.api.put(
        CLAIMS,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "dv", "namespace": NAMESPACE, **metadata},
            "spec": {**spec, "dataSourceRef": reference},
            "status": {"phase": "Pending"},
        },
    )
    return f"prime-{made['metadata']['uid']}"


async def test_claim_gets_the_volume_of_its_prime_claim_once_it_is_whole() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, {**BLANK, "preallocation": True})
        prime = put_target(
            cluster, annotations={STORAGE + "pod.priorityclassname": "high"}, labels={"x": "y"}
        )
        made = await cluster.claim(prime, import_source="none", preallocation_requested="true")
        assert made["metadata"]["annotations"][STORAGE + "pod.priorityclassname"] == "high"
        assert made["metadata"]["labels"].get("x") is None
        await cluster.bind(prime)
        await cluster.run_pod(f"importer-{prime}", **pod_status("Running", {"running": {}}))
        await cluster.claim(pod_phase="Running", populator_pvcPrime=prime)
        said = {"message": "Import Complete", "labels": {"a.kubevirt.io/b": "c", "x": "z", "d": "e"}}
        await cluster.run_pod(f"importer-{prime}", **pod_status("Succeeded", ended(said)))
        volume = f"pv-{prime}"
        found = await cluster.claim(pod_phase="Succeeded", populator_progress="100.0%")
        assert found["metadata"]["labels"] == {"x": "y", "a.kubevirt.io/b": "c"}
        await _given(cluster, volume)
        await cluster.bind("dv", volume)
        await cluster.gone(CLAIMS, prime)
        await cluster.event("importSucceeded")


async def _given(cluster: MemoryCluster, volume: str) -> None:
    """Return once the volume is the target's."""
    target = cluster.api.get(CLAIMS, "dv", NAMESPACE)
    assert target is not None
    wanted = target["metadata"]["uid"]

    def is_given() -> bool:
        found = cluster.api.get(core.PERSISTENT_VOLUMES, volume)
        return found is not None and get_str(found, "spec", "claimRef", "uid") == wanted

    await until(is_given)


async def test_a_whole_volume_changes_hands_with_nothing_said_but_that_it_is_whole() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, BLANK)
        prime = put_target(cluster)
        await cluster.claim(prime)
        await cluster.bind(prime)
        await cluster.run_pod(f"importer-{prime}", **pod_status("Running", {"running": {}}))
        await cluster.claim(pod_phase="Running", populator_pvcPrime=prime)
        cluster.api.requests.clear()
        await cluster.run_pod(f"importer-{prime}", **pod_status("Succeeded", ended()))
        await _given(cluster, f"pv-{prime}")
        await cluster.claim(pod_phase="Succeeded")
        written = [request.path for request in cluster.api.requests if request.method == "PATCH"]
        target, volume = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/dv", f"pv-{prime}"
        given = next(place for place, path in enumerate(written) if path.endswith(volume))
        assert written[:given].count(target) == 1


async def test_retained_prime_claim_stays() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, BLANK)
        prime = put_target(cluster, annotations={STORAGE + "pod.retainAfterCompletion": "true"})
        await cluster.claim(prime)
        await cluster.bind(prime)
        await cluster.run_pod(f"importer-{prime}", **pod_status("Succeeded", ended()))
        await cluster.event("RetainedPVCPrime")
        await cluster.bind("dv", f"pv-{prime}")
        await cluster.claim(condition_bound=None, pod_phase="Succeeded")
        assert cluster.api.get(CLAIMS, prime, NAMESPACE) is not None
        assert cluster.api.get(core.PODS, f"importer-{prime}", NAMESPACE) is not None


async def test_volume_that_is_not_the_prime_claims_is_not_given_away() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, BLANK)
        prime = put_target(cluster)
        await cluster.claim(prime)
        foreign = {
            "claimRef": {"name": "x", "namespace": "theirs", "uid": "theirs"},
            "storageClassName": "csi",
        }
        before = cluster.api.put(core.PERSISTENT_VOLUMES, {"metadata": {"name": "pv-x"}, "spec": foreign})
        await cluster.bind(prime, "pv-x")
        await cluster.run_pod(f"importer-{prime}", **pod_status("Succeeded", ended()))
        await cluster.claim(pod_phase="Succeeded")
        await cluster.event("importSucceeded")
        assert cluster.api.get(core.PERSISTENT_VOLUMES, "pv-x") == before


async def test_claim_of_somebody_else_with_the_name_of_a_prime_claim_is_not_used() -> None:
    async with memory_cluster() as cluster:
        prime = put_target(cluster)
        metadata = {
            "name": prime,
            "namespace": NAMESPACE,
            "annotations": {STORAGE + "pod.phase": "Succeeded"},
        }
        cluster.api.put(CLAIMS, {"metadata": metadata, "spec": {"storageClassName": "csi"}})
        await cluster.bind(prime)
        put_source(cluster, BLANK)
        await cluster.event("ErrCreatingPVCPrime")
        found = await cluster.claim()
        assert STORAGE + "pod.phase" not in found["metadata"].get("annotations", {})


async def test_source_may_come_late_and_the_node_too() -> None:
    async with memory_cluster() as cluster:
        cluster.storage_class("wait", driver=True, volumeBindingMode="WaitForFirstConsumer")
        prime = put_target(cluster, "wait")
        put_source(cluster, BLANK)
        change = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
        await cluster.client.patch(CLAIMS, "dv", change, NAMESPACE, type="merge")
        made = await cluster.claim(prime)
        assert made["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n1"
        pod = await cluster.until(core.PODS, f"importer-{prime}")
        assert pod["spec"]["nodeName"] == "n1"


@pytest.mark.feature("STO-68")
@pytest.mark.parametrize("provisioner", ["kubernetes.io/no-provisioner", "wait.example"])
async def test_no_prime_claim_without_node_or_provisioner(provisioner: str) -> None:
    async with memory_cluster() as cluster:
        mode = {"volumeBindingMode": "WaitForFirstConsumer"} if provisioner == "wait.example" else {}
        cluster.api.put(core.STORAGE_CLASSES, {"metadata": {"name": "c"}, "provisioner": provisioner, **mode})
        put_source(cluster, BLANK)
        prime = put_target(cluster, "c")
        await cluster.data_volume("other")
        await cluster.phase("Pending", "other")
        assert cluster.api.get(CLAIMS, prime, NAMESPACE) is None


async def test_upload_goes_through_a_prime_claim_too() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, {"contentType": "archive"}, "VolumeUploadSource")
        prime = put_target(cluster, kind="VolumeUploadSource")
        await cluster.claim(prime, upload_target="", contentType="archive")
        await cluster.bind(prime)
        ready = pod_status("Running", {"running": {}}, "cdi-upload-server")
        await cluster.run_pod(f"cdi-upload-{prime}", **ready)
        await cluster.claim(pod_ready="true", populator_progress=None)
        await cluster.run_pod(f"cdi-upload-{prime}", **pod_status("Succeeded", ended(), "cdi-upload-server"))
        await cluster.event("UploadSucceeded")
        await _given(cluster, f"pv-{prime}")


async def test_events_of_the_prime_claim_are_seen_at_the_claim_that_was_asked_for() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, BLANK)
        prime = put_target(cluster)
        made = await cluster.claim(prime)
        involved = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": prime}
        involved["uid"] = made["metadata"]["uid"]
        for number, reason in enumerate(("ClaimMisbound", "ProvisioningFailed")):
            event = {"metadata": {"name": f"e{number}", "namespace": NAMESPACE}, "involvedObject": involved}
            cluster.api.put(
                core.EVENTS, {**event, "reason": reason, "message": f"why {number}", "type": "Warning"}
            )
        text = f"[{prime}] : why 1"
        await cluster.claim(condition_bound="false", condition_bound_message=text)
        assert (await cluster.event("ProvisioningFailed"))["message"] == text
        reasons = [
            each["reason"]
            for each in cluster.api.list(core.EVENTS, NAMESPACE)
            if each["involvedObject"]["name"] == "dv"
        ]
        assert "ClaimMisbound" not in reasons


def test_only_the_newest_of_many_events_are_passed_on() -> None:
    moments = [f"2026-01-01T00:00:{number:02}Z" for number in range(60)]
    events = [Event(message=moment, last_timestamp=moment) for moment in reversed(moments)]
    misbound = Event(reason="ClaimMisbound", last_timestamp="2026-02-01T00:00:00Z")
    assert [each.message for each in to_pass_on([misbound, *events])] == moments[-20:]


async def test_warm_import_goes_from_checkpoint_to_checkpoint() -> None:
    async with memory_cluster() as cluster:
        vddk = {"url": "https://v", "uuid": "1", "initImageURL": "vddk:1"}
        first, second = {"previous": "", "current": "one"}, {"previous": "one", "current": "two"}
        await cluster.data_volume(source={"vddk": vddk}, checkpoints=[first])
        claim = await cluster.claim()
        prime = f"prime-{claim['metadata']['uid']}"
        await cluster.claim(prime, checkpoint_current="one")
        await cluster.bind(prime)
        await cluster.run_pod(f"importer-{prime}-checkpoint-one", **pod_status("Succeeded", ended()))
        paused = await cluster.phase("Paused")
        assert paused["status"]["progress"] == "100.0%"
        change = {"spec": {"checkpoints": [first, second], "finalCheckpoint": True}}
        await cluster.client.patch(kinds.DATA_VOLUMES, "dv", change, NAMESPACE, type="merge")
        pod = await cluster.until(core.PODS, f"importer-{prime}-checkpoint-two")
        found = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert (found["IMPORTER_PREVIOUS_CHECKPOINT"], found["IMPORTER_FINAL_CHECKPOINT"]) == ("one", "true")
        running = pod_status("Running", {"running": {}})
        await cluster.run_pod(f"importer-{prime}-checkpoint-two", **running)
        await cluster.phase("ImportInProgress")
        await cluster.run_pod(f"importer-{prime}-checkpoint-two", **pod_status("Succeeded", ended()))
        await cluster.claim(checkpoint_done="true", pod_phase="Succeeded")
        await _given(cluster, f"pv-{prime}")
        await cluster.bind("dv", f"pv-{prime}")
        await cluster.phase("Succeeded")


async def test_content_is_fetched_again_when_the_volume_of_the_prime_claim_is_lost() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, BLANK)
        prime = put_target(cluster)
        made = await cluster.claim(prime)
        await cluster.bind(prime)
        await cluster.run_pod(f"importer-{prime}", **pod_status("Running", {"running": {}}))
        found = await cluster.claim(prime, pod_phase="Running")
        cluster.api.remove(core.PERSISTENT_VOLUMES, f"pv-{prime}")
        cluster.api.put(CLAIMS, {**found, "status": {"phase": "Lost"}})
        await cluster.until(CLAIMS, prime, lambda new: new["metadata"]["uid"] != made["metadata"]["uid"])
