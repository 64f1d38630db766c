"""The controllers of importer and upload pods: starting, watching, starting anew, removing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cdi_claims import STORAGE, claim_document, ended, pod_status
from tests.support.cdi_memory import NAMESPACE, MemoryCluster, memory_cluster

from kubecore import resources as core
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_str

CLAIMS = core.PERSISTENT_VOLUME_CLAIMS
HTTP = {"import.source": "http", "import.endpoint": "http://files.example/x"}
UPLOAD = {"upload.target": ""}
FINALIZER = "cdi.kubevirt.io/importImageStream"


def put(cluster: MemoryCluster, annotations: dict[str, str], **members: Any) -> JsonObject:
    return cluster.api.put(CLAIMS, claim_document(annotations=annotations, **members))


def requests(cluster: MemoryCluster, method: str, path: str) -> list[Request]:
    return [each for each in cluster.api.requests if each.method == method and each.path.endswith(path)]


@pytest.mark.parametrize(("phase", "gate"), [("Pending", "HonorWaitForFirstConsumer"), ("Pending", "None")])
async def test_claim_without_volume_gets_a_pod_only_where_nobody_waits(phase: str, gate: str) -> None:
    async with memory_cluster(gate) as cluster:
        put(cluster, HTTP, phase=phase)
        if gate == "None":
            await cluster.until(core.PODS, "importer-dv")
            return
        cluster.api.put(CLAIMS, claim_document("other", "9", annotations=HTTP))
        await cluster.until(core.PODS, "importer-other")
        assert cluster.api.get(core.PODS, "importer-dv", NAMESPACE) is None


@pytest.mark.feature("STO-58")
async def test_importer_that_needs_scratch_space_starts_anew_with_it() -> None:
    async with memory_cluster() as cluster:
        put(cluster, HTTP)
        first = await cluster.run_pod(
            "importer-dv", **pod_status("Succeeded", ended({"scratchSpaceRequired": True, "message": ""}))
        )
        again = await cluster.until(
            core.PODS, "importer-dv", lambda found: found["metadata"]["uid"] != first["metadata"]["uid"]
        )
        assert any(each["name"] == "cdi-scratch-vol" for each in again["spec"]["volumes"])
        await cluster.run_pod("importer-dv", **pod_status("Pending"))
        scratch = await cluster.claim("dv-scratch")
        assert scratch["metadata"]["ownerReferences"][0]["uid"] == again["metadata"]["uid"]
        await cluster.claim(condition_bound="false", condition_bound_reason="CreatingScratchSpace")
        await cluster.bind("dv-scratch")
        await cluster.claim(condition_bound=None, condition_bound_reason=None)


async def test_image_cannot_make_its_claim_something_that_cdi_removes() -> None:
    async with memory_cluster() as cluster:
        put(cluster, HTTP)
        wanted = {"instancetype.kubevirt.io/default-preference": "fedora"}
        evil = {"cdi.kubevirt.io/OwnedByUID": "nobody", "cdi.kubevirt.io/dataImportCron.cleanup": "true"}
        await cluster.run_pod("importer-dv", **pod_status("Succeeded", ended({"labels": wanted | evil})))
        claim = await cluster.claim(pod_phase="Succeeded")
        assert claim["metadata"]["labels"] == wanted


def _gated(claim: JsonObject, name: str, component: str) -> JsonObject:
    owner = {
        "kind": "PersistentVolumeClaim",
        "name": "dv",
        "uid": claim["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"cdi.kubevirt.io": component},
        "ownerReferences": [owner],
    }
    volumes = [{"name": "cdi-data-vol", "persistentVolumeClaim": {"claimName": "dv"}}]
    gates = [{"name": "cdi.virtplane.io/wanted"}, {"name": "example.com/other"}]
    return {"metadata": metadata, "spec": {"volumes": volumes, "schedulingGates": gates}}


async def test_pod_waits_until_it_is_seen_that_its_claim_still_needs_it() -> None:
    async with memory_cluster() as cluster:
        claim = put(cluster, HTTP)
        await cluster.until(core.PODS, "importer-dv")
        (request,) = requests(cluster, "POST", "/pods")
        assert b"cdi.virtplane.io/wanted" in (request.body or b"")
        await cluster.until(core.PODS, "importer-dv", lambda found: not found["spec"]["schedulingGates"])
        after = cluster.api.requests[cluster.api.requests.index(request) + 1 :]
        names = [(each.method, each.path.rpartition("/")[2]) for each in after]
        assert [each for each in names if each[1] in ("dv", "importer-dv")][:2] == [
            ("GET", "dv"),  # the claim is read once more
            ("PATCH", "importer-dv"),
        ]
        cluster.api.put(core.PODS, _gated(claim, "importer-dv", "importer"))
        opened = await cluster.until(
            core.PODS, "importer-dv", lambda found: len(found["spec"]["schedulingGates"]) == 1
        )
        assert opened["spec"]["schedulingGates"] == [{"name": "example.com/other"}]


@pytest.mark.parametrize(
    ("annotations", "name", "component"),
    [
        (HTTP, "importer-dv", "importer"),
        ({**HTTP, "pod.retainAfterCompletion": "true"}, "importer-dv", "importer"),
        (UPLOAD, "cdi-upload-dv", "cdi-upload-server"),
    ],
)
async def test_pod_that_comes_after_its_claim_is_filled_never_starts(
    annotations: dict[str, str], name: str, component: str
) -> None:
    async with memory_cluster() as cluster:
        claim = put(cluster, {**annotations, "pod.phase": "Succeeded"})
        cluster.api.put(core.PODS, _gated(claim, name, component))
        await cluster.gone(core.PODS, name)


async def test_ended_pod_of_a_prime_claim_stays_until_the_volume_has_gone_to_its_target() -> None:
    async with memory_cluster() as cluster:
        prime = {**HTTP, "cdi.kubevirt.io/storage.populator.kind": "VolumeImportSource"}
        put(cluster, prime)
        made = await cluster.run_pod("importer-dv", **pod_status("Succeeded", ended()))
        assert "schedulingGates" not in made["spec"]
        await cluster.claim(pod_phase="Succeeded")
        assert cluster.api.get(core.PODS, "importer-dv", NAMESPACE) is not None
        claim = await cluster.claim()
        cluster.api.put(CLAIMS, {**claim, "status": {**claim["status"], "phase": "Lost"}})
        await cluster.gone(core.PODS, "importer-dv")


async def test_no_pod_is_made_while_the_scratch_space_of_an_earlier_one_goes() -> None:
    async with memory_cluster() as cluster:
        going: dict[str, Any] = {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubernetes.io/pvc-protection"],
        }
        scratch = cluster.api.put(CLAIMS, claim_document("dv-scratch", "2", **going))
        put(cluster, HTTP)
        cluster.api.put(CLAIMS, claim_document("other", "9", annotations=HTTP))
        await cluster.until(core.PODS, "importer-other")
        assert cluster.api.get(core.PODS, "importer-dv", NAMESPACE) is None
        cluster.api.remove(CLAIMS, scratch["metadata"]["name"], NAMESPACE)
        await cluster.until(core.PODS, "importer-dv")


@pytest.mark.parametrize("is_there", [True, False])
async def test_nobody_learns_whether_a_claim_is_there_that_he_may_not_clone(is_there: bool) -> None:
    async with memory_cluster() as cluster:
        if is_there:
            document = claim_document("src", "5")
            cluster.api.put(CLAIMS, {**document, "metadata": {**document["metadata"], "namespace": "theirs"}})
        given = {"k8s.io/CloneRequest": "theirs/src", "pod.ready": "true", "extended.clone.token": "forged"}
        put(cluster, given)
        event = await cluster.event("CloneValidationFailed")
        assert event["message"] == "error verifying token: there is no Secret cdi/cdi-api-signing-key"
        reasons = {each["reason"] for each in cluster.api.list(core.EVENTS, NAMESPACE)}
        assert "CloneWithoutSource" not in reasons


async def test_wrong_checksum_ends_the_import() -> None:
    async with memory_cluster() as cluster:
        put(cluster, HTTP)
        message = "Unable to process data: checksum validation failed: checksum mismatch: expected md5:a"
        await cluster.run_pod("importer-dv", **pod_status("Succeeded", ended({"message": message})))
        await cluster.claim(import_fatalError="true", pod_phase="Failed")
        await cluster.gone(core.PODS, "importer-dv")
        assert (await cluster.event("ErrImportFailed"))["message"] == message
        assert len(requests(cluster, "POST", "/pods")) == 1


async def test_retained_pod_stays_after_success() -> None:
    async with memory_cluster() as cluster:
        put(cluster, {**HTTP, "pod.retainAfterCompletion": "true"})
        await cluster.run_pod("importer-dv", **pod_status("Succeeded", ended()))
        await cluster.claim(pod_phase="Succeeded")
        await cluster.event("ImportSucceeded")
        assert cluster.api.get(core.PODS, "importer-dv", NAMESPACE) is not None


async def test_evicted_pod_is_replaced_and_a_failed_one_is_told() -> None:
    async with memory_cluster() as cluster:
        put(cluster, HTTP)
        evicted = await cluster.run_pod("importer-dv", status={"phase": "Failed", "reason": "Evicted"})
        await cluster.until(
            core.PODS, "importer-dv", lambda found: found["metadata"]["uid"] != evicted["metadata"]["uid"]
        )
        await cluster.run_pod("importer-dv", **pod_status("Failed", ended("no", code=1, reason="Error")))
        await cluster.claim(pod_phase="Failed", condition_running_message="no")


async def test_claim_in_use_waits_for_its_user() -> None:
    async with memory_cluster() as cluster:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "dv"}}]
        metadata = {"name": "user", "namespace": NAMESPACE}
        user = cluster.api.put(
            core.PODS, {"metadata": metadata, "spec": {"volumes": volumes}, "status": {"phase": "Running"}}
        )
        put(cluster, HTTP)
        text = (await cluster.event("ImportTargetInUse"))["message"]
        assert text == "pod ns/user using PersistentVolumeClaim dv"
        assert cluster.api.get(core.PODS, "importer-dv", NAMESPACE) is None
        cluster.api.put(core.PODS, {**user, "status": {"phase": "Succeeded"}})
        await cluster.until(core.PODS, "importer-dv")


@pytest.mark.parametrize("name", ["importer-dv", "cdi-upload-dv"])
async def test_pod_of_somebody_else_with_the_name_is_not_believed(name: str) -> None:
    async with memory_cluster() as cluster:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "dv"}}]
        metadata = {"name": name, "namespace": NAMESPACE}
        status = pod_status("Succeeded", ended())
        cluster.api.put(core.PODS, {"metadata": metadata, "spec": {"volumes": volumes}, **status})
        put(cluster, HTTP if name == "importer-dv" else UPLOAD)
        await cluster.event("ErrStartingPod")
        found = await cluster.claim(condition_running_reason="ErrStartingPod")
        assert STORAGE + "pod.phase" not in found["metadata"]["annotations"]
        assert cluster.api.get(core.PODS, name, NAMESPACE) is not None


@pytest.mark.parametrize(
    ("message", "reason"),
    [("exceeded quota: q", "ErrExceededQuota"), ("no PriorityClass with name x", "ErrStartingPod")],
)
async def test_pod_that_is_refused_is_told_in_the_claim_and_why_in_the_log(
    message: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_cluster() as cluster:

        def refuse(request: Request) -> StatusError | None:
            is_pod = request.method == "POST" and request.path.endswith("/pods")
            return StatusError(403, "Forbidden", message) if is_pod else None

        cluster.api.reactions.append(refuse)
        put(cluster, HTTP)
        found = await cluster.claim(condition_running="false", condition_running_reason=reason)
        text = found["metadata"]["annotations"][STORAGE + "condition.running.message"]
        assert text.startswith("Error starting pod 'importer-dv':")
        assert (await cluster.event(reason))["message"] == text
        assert message not in text
        assert f"pod {NAMESPACE}/importer-dv cannot be created for its claim: {message}" in caplog.messages


async def test_vddk_import_waits_for_its_image() -> None:
    async with memory_cluster() as cluster:
        put(cluster, {"import.source": "vddk", "import.endpoint": "https://vcenter"})
        await cluster.claim(condition_bound_reason="AwaitingVDDK", import_importPodName="importer-dv")
        config = {
            "metadata": {"name": "v2v-vmware", "namespace": "cdi"},
            "data": {"vddk-init-image": "vddk:1"},
        }
        cluster.api.put(core.CONFIG_MAPS, config)
        change = {"metadata": {"labels": {"touched": "yes"}}}
        await cluster.client.patch(CLAIMS, "dv", change, NAMESPACE, type="merge")
        pod = await cluster.until(core.PODS, "importer-dv")
        assert pod["spec"]["initContainers"][0]["image"] == "vddk:1"
        await cluster.run_pod("importer-dv", **pod_status("Running", {"running": {}}))
        await cluster.claim(condition_bound_reason=None, pod_phase="Running")


async def test_claim_with_a_pod_of_an_image_stream_goes_after_the_pod() -> None:
    async with memory_cluster() as cluster:
        stream = {"import.source": "registry", "import.endpoint": "s", "import.registryImportMethod": "node"}
        put(cluster, {**stream, "import.registryImageStream": "true"})
        await cluster.until(core.PODS, "importer-dv")
        assert FINALIZER in (await cluster.claim())["metadata"]["finalizers"]
        await cluster.client.delete(CLAIMS, "dv", NAMESPACE)
        await cluster.gone(core.PODS, "importer-dv")
        await cluster.gone(CLAIMS, "dv")


@pytest.mark.parametrize("annotations", [HTTP, UPLOAD])
async def test_claim_that_is_deleted_does_not_wait_for_its_worker(annotations: dict[str, str]) -> None:
    async with memory_cluster() as cluster:
        put(cluster, annotations, finalizers=["kubernetes.io/pvc-protection"])
        name = "importer-dv" if annotations is HTTP else "cdi-upload-dv"
        await cluster.run_pod(name, status={"phase": "Running"})
        await cluster.client.delete(CLAIMS, "dv", NAMESPACE)
        await cluster.gone(core.PODS, name)


async def test_claim_that_is_no_upload_target_any_more_loses_its_server() -> None:
    async with memory_cluster() as cluster:
        put(cluster, UPLOAD)
        await cluster.run_pod("cdi-upload-dv", status={"phase": "Running"})
        await cluster.until(core.SERVICES, "cdi-upload-dv")
        removal = {"metadata": {"annotations": {STORAGE + "upload.target": None}}}
        await cluster.client.patch(CLAIMS, "dv", removal, NAMESPACE, type="merge")
        await cluster.gone(core.PODS, "cdi-upload-dv")
        await cluster.gone(core.SERVICES, "cdi-upload-dv")


async def test_upload_server_with_old_certificates_is_replaced_by_one_with_new_ones() -> None:
    async with memory_cluster() as cluster:
        put(cluster, UPLOAD)
        await cluster.run_pod("cdi-upload-dv", status={"phase": "Pending"})
        before = await cluster.until(core.SECRETS, "cdi-upload-dv")
        state = ended({"deadlinePassed": True, "message": "Deadline Passed"})
        old = await cluster.run_pod("cdi-upload-dv", **pod_status("Succeeded", state, "cdi-upload-server"))
        new = await cluster.until(
            core.PODS, "cdi-upload-dv", lambda found: found["metadata"]["uid"] != old["metadata"]["uid"]
        )
        await cluster.client.delete(core.SECRETS, "cdi-upload-dv", NAMESPACE)  # as it goes with its pod
        after = await cluster.until(core.SECRETS, "cdi-upload-dv")
        assert after["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]
        assert get_str(after, "data", "tls.crt") != get_str(before, "data", "tls.crt")


async def test_certificate_waits_until_that_of_an_earlier_pod_is_gone() -> None:
    async with memory_cluster() as cluster:
        metadata = {"name": "cdi-upload-dv", "namespace": NAMESPACE}
        cluster.api.put(core.SECRETS, {"metadata": metadata, "data": {"tls.crt": "bWluZQ=="}})
        put(cluster, UPLOAD)
        pod = await cluster.run_pod("cdi-upload-dv", status={"phase": "Pending"})
        await cluster.client.delete(core.SECRETS, "cdi-upload-dv", NAMESPACE)
        found = await cluster.until(core.SECRETS, "cdi-upload-dv")
        assert found["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


async def test_target_of_a_clone_takes_its_source_and_nobody_else() -> None:
    async with memory_cluster() as cluster:
        given = {"k8s.io/CloneRequest": "ns/src", "cdi.kubevirt.io/uploadClientName": "ns/src-ns/dv"}
        put(cluster, given)
        pod = await cluster.until(core.PODS, "cdi-upload-dv")
        assert {"name": "CLIENT_NAME", "value": "ns/src-ns/dv"} in pod["spec"]["containers"][0]["env"]
        assert not any(each["name"] == "cdi-scratch-vol" for each in pod["spec"]["volumes"])


async def test_authorities_of_the_proxy_are_copied_for_the_pod() -> None:
    async with memory_cluster() as cluster:
        proxy = {"HTTPProxy": "http://p", "HTTPSProxy": "", "noProxy": "", "trustedCAProxy": "ca"}
        cluster.settings("HonorWaitForFirstConsumer", importProxy=proxy)
        source = {"metadata": {"name": "ca", "namespace": "cdi"}, "data": {"ca.pem": "x"}}
        cluster.api.put(core.CONFIG_MAPS, source)
        put(cluster, HTTP)
        pod = await cluster.run_pod("importer-dv", status={"phase": "Pending"})
        copy = await cluster.until(core.CONFIG_MAPS, "import-proxy-cm-dv")
        assert copy["data"] == {"ca.pem": "x"}
        assert copy["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
