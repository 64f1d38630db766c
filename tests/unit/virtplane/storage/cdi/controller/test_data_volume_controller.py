"""DataVolumes and their claims: both ways to fill them, claims of others, quotas, static volumes."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from tests.support.cdi_claims import STORAGE, ended, pod_status
from tests.support.cdi_memory import GIB, NAMESPACE, MemoryCluster, memory_cluster

from kubecore import resources as core
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from virtplane.api import resources as kinds

CLAIMS = core.PERSISTENT_VOLUME_CLAIMS


def conditions(volume: JsonObject) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each.get("reason", ""), each.get("message", ""))
        for each in volume["status"]["conditions"]
    }


def _runs(wanted: tuple[str, str, str], volume: JsonObject) -> bool:
    return conditions(volume)["Running"] == wanted


def put_claim(cluster: MemoryCluster, **annotations: str) -> JsonObject:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": GIB, "storageClassName": "old"}
    metadata = {"name": "dv", "namespace": NAMESPACE, "annotations": annotations}
    return cluster.api.put(CLAIMS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})


@pytest.mark.feature("INS-30")
async def test_each_import_has_one_helper_pod_of_its_own_and_other_volumes_none() -> None:
    async with memory_cluster() as cluster:
        for name in ("a", "b"):
            await cluster.data_volume(name, storage_class="old")
        await cluster.data_volume("sent", storage_class="old", source={"upload": {}})
        for name in ("a", "b", "sent"):
            await cluster.claim(name)
            await cluster.bind(name)
        for name in ("a", "b"):
            pod = await cluster.run_pod(f"importer-{name}", **pod_status("Running", {"running": {}}))
            [container] = pod["spec"]["containers"]
            assert container["name"] == "importer"
            [mounted] = [each for each in pod["spec"]["volumes"] if "persistentVolumeClaim" in each]
            assert mounted["persistentVolumeClaim"]["claimName"] == name
            await cluster.phase("ImportInProgress", name)
        await cluster.until(core.PODS, "cdi-upload-sent")
        found = {each["metadata"]["name"] for each in cluster.api.list(core.PODS, NAMESPACE)}
        assert found == {"importer-a", "importer-b", "cdi-upload-sent"}


@pytest.mark.feature("STO-46", "SUP-26", "SUP-28")
async def test_claim_without_driver_is_filled_by_its_own_annotations() -> None:
    async with memory_cluster() as cluster:
        await cluster.data_volume(storage_class="old", labels={"x": "y"}, annotations={"a/b": "c"})
        claim = await cluster.claim(import_source="http", usePopulator="false")
        assert claim["metadata"]["annotations"]["a/b"] == "c"
        assert claim["metadata"]["labels"]["x"] == "y"
        assert claim["spec"]["resources"] == {"requests": {"storage": "1138166334"}}
        await cluster.bind("dv")
        await cluster.run_pod("importer-dv", **pod_status("Running", {"running": {}}))
        running = await cluster.phase("ImportInProgress")
        assert conditions(running)["Ready"] == ("False", "TransferRunning", "")
        await cluster.run_pod("importer-dv", **pod_status("Succeeded", ended()))
        done = await cluster.phase("Succeeded")
        assert conditions(done) == {
            "Bound": ("True", "Bound", "PVC dv Bound"),
            "Ready": ("True", "", ""),
            "Running": ("False", "Completed", "Import Complete"),
        }
        assert done["status"]["progress"] == "100.0%"
        await cluster.gone(core.PODS, "importer-dv")
        assert (await cluster.event("ImportSucceeded"))["type"] == "Normal"
        bound = await cluster.event("Bound")
        assert (bound["type"], bound["message"]) == ("Normal", "PVC dv Bound")
        assert bound["source"]["component"] == "datavolume-import-controller"


@pytest.mark.feature("SUP-25", "SUP-27")
async def test_import_that_fails_is_told_in_conditions_and_events_as_often_as_it_does() -> None:
    async with memory_cluster() as cluster:
        await cluster.data_volume(storage_class="old")
        await cluster.claim()
        await cluster.bind("dv")
        refusals = ("404. Status: 404 Not Found", "403. Status: 403 Forbidden")
        for number, refusal in enumerate(refusals, 1):
            text = f"Unable to connect to http data source: expected status code 200, got {refusal}"
            status = pod_status("Running", ended(text, code=1, reason="Error"))
            status["status"]["containerStatuses"][0]["restartCount"] = number
            await cluster.run_pod("importer-dv", **status)
            wanted = ("False", "Error", text)
            await cluster.until(kinds.DATA_VOLUMES, "dv", partial(_runs, wanted))
            told = await cluster.event("Error", message=text)
            assert told["type"] == "Warning"
            assert told["source"]["component"] == "datavolume-import-controller"
            assert told["firstTimestamp"]


@pytest.mark.feature("STO-48")
@pytest.mark.parametrize("storage_class", ["csi", "old"])
async def test_networks_of_a_data_volume_are_those_of_its_pods_and_of_nothing_else(
    storage_class: str,
) -> None:
    networks = {
        "v1.multus-cni.io/default-network": "bridge-network",
        "k8s.v1.cni.cncf.io/networks": "storage",
    }
    async with memory_cluster("None") as cluster:
        annotations = {**networks, "example.com/other": "x"}
        await cluster.data_volume(storage_class=storage_class, annotations=annotations)
        claim = await cluster.claim()
        name = f"importer-prime-{claim['metadata']['uid']}" if storage_class == "csi" else "importer-dv"
        pod = await cluster.until(core.PODS, name)
        found = pod["metadata"]["annotations"]
        assert networks.items() <= found.items()
        assert "example.com/other" not in found


async def test_claim_with_driver_names_a_source_that_goes_after_success() -> None:
    async with memory_cluster() as cluster:
        volume = await cluster.data_volume()
        claim = await cluster.claim(usePopulator="true")
        name = f"volume-import-source-{volume['metadata']['uid']}"
        assert claim["spec"]["dataSourceRef"] == {
            "apiGroup": "cdi.kubevirt.io",
            "kind": "VolumeImportSource",
            "name": name,
        }
        source = await cluster.until(kinds.VOLUME_IMPORT_SOURCES, name)
        assert source["spec"]["source"] == {"http": {"url": "http://files.example/x"}}
        cluster.api.put(
            CLAIMS,
            {
                **claim,
                "metadata": {
                    **claim["metadata"],
                    "annotations": {**claim["metadata"]["annotations"], STORAGE + "pod.phase": "Succeeded"},
                },
            },
        )
        await cluster.bind("dv")
        await cluster.phase("Succeeded")
        await cluster.gone(kinds.VOLUME_IMPORT_SOURCES, name)


@pytest.mark.parametrize(("asked", "uses"), [({}, "true"), ({"storageClassName": ""}, "false")])
async def test_claim_without_class_is_filled_as_the_default_class_provides(
    asked: JsonObject, uses: str
) -> None:
    """What `spec.pvc` says is taken as it is; Kubernetes fills the default class in later."""
    async with memory_cluster() as cluster:
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        cluster.storage_class("usual", driver=True, metadata={"name": "usual", "annotations": annotations})
        pvc = {"accessModes": ["ReadWriteOnce"], "resources": GIB, **asked}
        await cluster.data_volume(pvc=pvc, storage=None)
        claim = await cluster.claim(usePopulator=uses)
        assert ("dataSourceRef" in claim["spec"]) == (uses == "true")
        assert claim["spec"].get("storageClassName") == asked.get("storageClassName")


@pytest.mark.feature("STO-14")
async def test_what_cannot_be_rendered_waits_for_a_class() -> None:
    async with memory_cluster() as cluster:
        await cluster.data_volume(storage={"resources": GIB, "storageClassName": "later"})
        text = "PVC spec is missing accessMode and no storageClass to choose profile"
        found = await cluster.until(kinds.DATA_VOLUMES, "dv", lambda each: "status" in each)
        assert conditions(found)["Bound"] == ("False", "ErrClaimNotValid", text)
        assert "phase" not in found["status"]
        assert (await cluster.event("ErrClaimNotValid"))["message"] == text
        sets = [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}]
        cluster.api.put(
            kinds.STORAGE_PROFILES,
            {"metadata": {"name": "later"}, "spec": {}, "status": {"claimPropertySets": sets}},
        )
        cluster.storage_class("later", driver=False)
        assert (await cluster.claim())["spec"]["volumeMode"] == "Block"


async def test_event_of_a_class_wakes_only_those_who_wait_for_it() -> None:
    async with memory_cluster() as cluster:
        storage = {"resources": GIB, "storageClassName": "elsewhere"}
        for number in range(20):
            await cluster.data_volume(f"dv-{number}", storage=storage)
        await cluster.data_volume("last", storage={"resources": GIB, "storageClassName": "later"})
        await cluster.event("ErrClaimNotValid", "last")
        before = len(cluster.api.requests)
        cluster.storage_class("foreign", driver=False)
        cluster.storage_class("later", driver=False)
        sets = [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}]
        cluster.api.put(
            kinds.STORAGE_PROFILES,
            {"metadata": {"name": "later"}, "spec": {}, "status": {"claimPropertySets": sets}},
        )
        await cluster.until(core.PERSISTENT_VOLUME_CLAIMS, "last")
        asked = [each.path for each in cluster.api.requests[before:]]
        assert not any("dv-" in path for path in asked)


async def test_quota_is_told_until_there_is_room() -> None:
    async with memory_cluster() as cluster:
        text = 'persistentvolumeclaims "dv" is forbidden: exceeded quota: q'

        def refuse(request: Request) -> StatusError | None:
            is_claim = request.method == "POST" and request.path.endswith("/persistentvolumeclaims")
            return StatusError(403, "Forbidden", text) if is_claim else None

        cluster.api.reactions.append(refuse)
        await cluster.data_volume(storage_class="old")
        found = await cluster.phase("Pending")
        assert conditions(found)["Ready"] == ("False", "ErrExceededQuota", text)
        assert "claimName" not in found["status"]
        assert (await cluster.event("ErrExceededQuota"))["message"] == text
        cluster.api.reactions.clear()
        cluster.storage_class("old", driver=False, parameters={"a": "b"})  # wakes those that wait for it
        async with asyncio.timeout(8):  # before the next try
            await cluster.claim()


async def test_claim_that_a_webhook_denies_is_told_as_none_and_its_words_as_an_event() -> None:
    async with memory_cluster() as cluster:
        text = 'admission webhook "pvc-mutate.cdi.kubevirt.io" denied the request: no storage class'

        def deny(request: Request) -> StatusError | None:
            is_claim = request.method == "POST" and request.path.endswith("/persistentvolumeclaims")
            return StatusError(403, "Forbidden", text) if is_claim else None

        cluster.api.reactions.append(deny)
        await cluster.data_volume(storage_class="old")
        found = await cluster.phase("Pending")
        assert conditions(found)["Bound"] == ("False", "NotFound", "No PVC found")
        assert conditions(found)["Ready"] == ("False", "", text)
        assert (await cluster.event("ErrClaimNotValid"))["message"] == text
        assert (await cluster.event("NotFound"))["message"] == "No PVC found"


async def test_claim_of_somebody_else_is_left_alone_unless_it_may_be_adopted() -> None:
    async with memory_cluster() as cluster:
        made = put_claim(cluster)
        await cluster.data_volume(storage_class="old")
        message = (await cluster.event("ErrResourceExists"))["message"]
        assert message == 'Resource "dv" already exists and is not managed by DataVolume'
        kept = cluster.api.get(CLAIMS, "dv", NAMESPACE)
        assert kept is not None
        assert kept["metadata"].get("ownerReferences") == made["metadata"].get("ownerReferences")
        allow = {"metadata": {"annotations": {"cdi.kubevirt.io/allowClaimAdoption": "true"}}}
        await cluster.client.patch(kinds.DATA_VOLUMES, "dv", allow, NAMESPACE, type="merge")
        done = await cluster.phase("Succeeded")
        owner = (await cluster.claim())["metadata"]["ownerReferences"][0]
        assert owner["uid"] == done["metadata"]["uid"]
        assert done["status"]["progress"] == "N/A"


async def test_claim_that_holds_the_content_is_taken_over() -> None:
    async with memory_cluster() as cluster:
        put_claim(cluster, **{STORAGE + "populatedFor": "dv"})
        await cluster.bind("dv")
        await cluster.data_volume(storage_class="old")
        done = await cluster.phase("Succeeded")
        assert done["metadata"]["annotations"][STORAGE + "prePopulated"] == "dv"


async def test_data_volume_that_is_told_that_its_claim_will_come_makes_none() -> None:
    async with memory_cluster() as cluster:
        await cluster.data_volume(annotations={STORAGE + "prePopulated": "dv"})
        found = await cluster.phase("Pending")
        assert conditions(found)["Bound"] == ("False", "NotFound", "No PVC found")
        assert not cluster.api.list(CLAIMS)


@pytest.mark.parametrize("bound_to", ["pv-1", "pv-2"])
async def test_static_volume_is_used_instead_of_an_import(bound_to: str) -> None:
    async with memory_cluster() as cluster:
        spec = {"claimRef": {"namespace": NAMESPACE, "name": "dv"}, "storageClassName": "csi"}
        cluster.api.put(
            core.PERSISTENT_VOLUMES,
            {"metadata": {"name": "pv-1"}, "spec": spec, "status": {"phase": "Available"}},
        )
        volume = await cluster.data_volume(annotations={STORAGE + "checkStaticVolume": ""})
        claim = await cluster.claim()
        assert json.loads(claim["metadata"]["annotations"][STORAGE + "persistentVolumeList"]) == ["pv-1"]
        assert "dataSourceRef" not in claim["spec"]
        await cluster.phase("Pending")
        await cluster.bind("dv", bound_to)
        if bound_to == "pv-1":
            done = await cluster.phase("Succeeded")
            assert done["metadata"]["annotations"][STORAGE + "prePopulated"] == "dv"
        else:
            first = claim["metadata"]["uid"]
            await cluster.until(CLAIMS, "dv", lambda found: found["metadata"]["uid"] != first)
        assert volume["metadata"]["name"] == "dv"


@pytest.mark.feature("STO-49")
async def test_upload_is_made_ready_and_ends() -> None:
    async with memory_cluster() as cluster:
        await cluster.data_volume(storage_class="old", source={"upload": {}}, preallocation=True)
        claim = await cluster.claim(upload_target="")
        assert claim["metadata"]["annotations"][STORAGE + "preallocation.requested"] == "true"
        await cluster.bind("dv")
        running = pod_status("Running", {"running": {}}, "cdi-upload-server")
        await cluster.run_pod("cdi-upload-dv", **running)
        await cluster.phase("UploadReady")
        assert cluster.api.get(core.SERVICES, "cdi-upload-dv", NAMESPACE) is not None
        await cluster.run_pod("cdi-upload-dv", **pod_status("Succeeded", ended(), "cdi-upload-server"))
        await cluster.phase("Succeeded")
        for kind in (core.PODS, core.SERVICES):
            await cluster.gone(kind, "cdi-upload-dv")


async def test_claim_that_others_fill_is_theirs() -> None:
    async with memory_cluster() as cluster:
        reference = {"apiGroup": "x.example.com", "kind": "Thing", "name": "t"}
        storage = {"accessModes": ["ReadWriteOnce"], "resources": GIB, "storageClassName": "csi"}
        await cluster.data_volume(source=None, pvc={**storage, "dataSourceRef": reference}, storage=None)
        claim = await cluster.claim()
        assert claim["metadata"]["annotations"]["cdi.kubevirt.io/externalPopulation"] == "true"
        assert claim["spec"]["dataSourceRef"] == reference
        await cluster.phase("Succeeded")
