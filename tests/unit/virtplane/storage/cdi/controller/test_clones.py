"""DataVolumes and claims that are clones, from their source to their volume."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.cdi_claims import STORAGE, ended, pod_status
from tests.support.cdi_clones import (
    CLAIMS,
    IMAGES,
    Tokens,
    bind,
    found,
    gone,
    profile,
    put_bound,
    put_source,
    receive,
)
from tests.support.cdi_memory import NAMESPACE, MemoryCluster, memory_cluster

from kubecore import resources as core
from kubecore.json import JsonObject, get_str
from virtplane.api import resources as kinds

OF_SRC = {"pvc": {"name": "src", "namespace": NAMESPACE}}
OF_IMAGE = {"pvc": {"name": "src", "namespace": IMAGES}}
TOKEN = f"{STORAGE}clone.token"
EXTENDED = f"{STORAGE}extended.clone.token"
CLONE_PHASE = "cdi.kubevirt.io/clonePhase"
SERVER_RUNS = pod_status("Running", {"running": {}}, "cdi-upload-server")
SERVER_ENDED = pod_status("Succeeded", ended("Clone Complete"), "cdi-upload-server")
SENDER_RUNS = pod_status("Running", {"running": {}}, "cdi-clone-source")
SENDER_ENDED = pod_status("Succeeded", ended("Clone Complete"), "cdi-clone-source")


def environment(pod: JsonObject) -> dict[str, str | None]:
    """What the pod's program is given."""
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}


async def target_uid(cluster: MemoryCluster) -> str:
    """The uid of the claim that is to become a clone."""
    return str((await found(cluster, CLAIMS, "dv"))["metadata"]["uid"])


def annotated(name: str, value: str) -> Any:
    """A condition for `found`."""
    return lambda each: each["metadata"].get("annotations", {}).get(name) == value


def bound_condition(reason: str) -> Any:
    """The same for a DataVolume whose condition Bound has a reason."""

    def holds(each: JsonObject) -> bool:
        conditions = each.get("status", {}).get("conditions", [])
        return any((one["type"], one.get("reason")) == ("Bound", reason) for one in conditions)

    return holds


@pytest.mark.feature("STO-21", "STO-28", "VMC-87")
async def test_driver_clones_once_the_source_is_at_rest() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        put_source(cluster)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "src"}}]
        mounts = [{"name": "v", "mountPath": "/v"}]
        user: JsonObject = {"metadata": {"name": "user", "namespace": NAMESPACE}}
        user["spec"] = {"volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}]}
        cluster.api.put(core.PODS, user)
        await cluster.data_volume(source=OF_SRC)
        uid = await target_uid(cluster)
        await cluster.event("CloneSourceInUse")
        assert cluster.api.get(CLAIMS, f"tmp-pvc-{uid}", NAMESPACE) is None
        mounts[0]["readOnly"] = True  # type: ignore[assignment]
        cluster.api.put(core.PODS, user)
        made = await found(cluster, CLAIMS, f"tmp-pvc-{uid}")
        assert made["spec"]["dataSourceRef"] == {"kind": "PersistentVolumeClaim", "name": "src"}
        await cluster.phase("CSICloneInProgress")
        volume = await bind(cluster, f"tmp-pvc-{uid}", capacity="2Gi")
        await receive(cluster, volume)
        finished = await cluster.phase("Succeeded")
        assert finished["metadata"]["annotations"]["cdi.kubevirt.io/cloneType"] == "csi-clone"
        assert finished["status"]["progress"] == "100.0%"
        await gone(cluster, CLAIMS, f"tmp-pvc-{uid}")
        await gone(cluster, kinds.VOLUME_CLONE_SOURCES, f"volume-clone-source-{finished['metadata']['uid']}")
        await cluster.event("CloneSucceeded")
        done = await found(cluster, CLAIMS, "dv")
        assert "cdi.kubevirt.io/clonePopulator" not in done["metadata"].get("finalizers", [])


async def test_clone_waits_for_its_source() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        await cluster.data_volume(source=OF_SRC)
        waiting = await found(cluster, kinds.DATA_VOLUMES, "dv", holds=bound_condition("CloneWithoutSource"))
        assert waiting["status"].get("phase", "") == ""
        put_source(cluster)
        await found(cluster, CLAIMS, f"tmp-pvc-{await target_uid(cluster)}")


async def test_source_that_is_still_being_filled_is_waited_for() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        volume = await cluster.data_volume("src", source={"upload": {}}, storage_class="old")
        source = await found(cluster, CLAIMS, "src")
        put_bound(cluster, source, "pv-src")
        await cluster.data_volume(source=OF_SRC)
        uid = await target_uid(cluster)
        await found(cluster, CLAIMS, "dv", holds=annotated("cdi.kubevirt.io/cloneType", "copy"))
        assert get_str(volume, "status", "phase") != "Succeeded"
        await found(cluster, CLAIMS, f"tmp-pvc-{uid}")
        assert cluster.api.get(core.PODS, f"{uid}-source-pod", NAMESPACE) is None


@pytest.mark.feature("STO-23")
@pytest.mark.feature("STO-24")
async def test_pods_copy_what_the_driver_cannot_clone() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        put_source(cluster, mode="Block")
        await cluster.data_volume(source=OF_SRC)
        uid = await target_uid(cluster)
        temporary = f"tmp-pvc-{uid}"
        wanted = annotated(
            "cdi.kubevirt.io/cloneFallbackReason", "The volume modes of source and target are incompatible"
        )
        await found(cluster, CLAIMS, "dv", holds=wanted)
        await cluster.event("IncompatibleVolumeModes")
        volume = await bind(cluster, temporary)
        made = await found(cluster, CLAIMS, temporary)
        source_pod = f"{made['metadata']['uid']}-source-pod"
        upload = await found(cluster, core.PODS, f"cdi-upload-{temporary}")
        client = {each["name"]: each.get("value") for each in upload["spec"]["containers"][0]["env"]}[
            "CLIENT_NAME"
        ]
        assert client == f"{NAMESPACE}/src-{NAMESPACE}/{temporary}"
        assert cluster.api.get(core.PODS, source_pod, NAMESPACE) is None, "the server is not ready"
        await cluster.run_pod(f"cdi-upload-{temporary}", **SERVER_RUNS)
        sender = await found(cluster, core.PODS, source_pod)
        environment = {each["name"]: each.get("value") for each in sender["spec"]["containers"][0]["env"]}
        assert (
            environment["UPLOAD_URL"] == f"https://cdi-upload-{temporary}.{NAMESPACE}.svc:8443/v1beta1/upload"
        )
        assert (environment["VOLUME_MODE"], environment["OWNER_UID"]) == ("block", uid)
        assert "BEGIN CERTIFICATE" in str(environment["SERVER_CA_CERT"])
        secret = await found(cluster, core.SECRETS, source_pod)
        assert secret["metadata"]["ownerReferences"][0]["uid"] == sender["metadata"]["uid"]
        await cluster.run_pod(source_pod, **SENDER_RUNS)
        await cluster.phase("CloneInProgress")
        await cluster.run_pod(f"cdi-upload-{temporary}", **SERVER_ENDED)
        await cluster.run_pod(source_pod, **SENDER_ENDED)
        await receive(cluster, volume)
        await cluster.phase("Succeeded")
        await gone(cluster, CLAIMS, temporary)
        await gone(cluster, core.PODS, source_pod)


async def test_name_of_a_client_is_never_taken_from_an_annotation() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, storage_class="old")
        stolen = {"cdi.kubevirt.io/uploadClientName": "client.upload-server.cdi.kubevirt.io"}
        await cluster.data_volume(source=OF_SRC, storage_class="old", annotations=stolen)
        await bind(cluster, "dv")
        upload = await found(cluster, core.PODS, "cdi-upload-dv")
        assert environment(upload)["CLIENT_NAME"] == f"{NAMESPACE}/src-{NAMESPACE}/dv"


async def test_classes_without_driver_are_copied_into_at_once() -> None:
    async with memory_cluster() as cluster:
        put_source(cluster, storage_class="old")
        await cluster.data_volume(source=OF_SRC, storage_class="old")
        await cluster.event("NoPopulator")
        claim = await found(cluster, CLAIMS, "dv", holds=annotated("cdi.kubevirt.io/cloneType", "copy"))
        assert claim["metadata"]["annotations"]["k8s.io/CloneRequest"] == f"{NAMESPACE}/src"
        await bind(cluster, "dv")
        source_pod = f"{claim['metadata']['uid']}-source-pod"
        await cluster.run_pod("cdi-upload-dv", **SERVER_RUNS)
        await cluster.run_pod(source_pod, **SENDER_RUNS)
        await cluster.phase("CloneInProgress")
        await cluster.run_pod("cdi-upload-dv", **SERVER_ENDED)
        await cluster.run_pod(source_pod, **SENDER_ENDED)
        await cluster.phase("Succeeded")
        await gone(cluster, core.PODS, source_pod)
        finished = await found(cluster, CLAIMS, "dv", holds=annotated("k8s.io/CloneOf", "true"))
        assert "cdi.kubevirt.io/cloneType" in finished["metadata"]["annotations"]


@pytest.mark.feature("STO-22")
async def test_snapshot_leads_to_a_larger_volume() -> None:
    async with memory_cluster() as cluster:
        cluster.storage_class("csi", driver=True, allowVolumeExpansion=True)
        profile(cluster, "snapshot")
        snapshot_class = {"metadata": {"name": "snap"}, "driver": "csi.example", "deletionPolicy": "Delete"}
        cluster.api.put(kinds.VOLUME_SNAPSHOT_CLASSES, snapshot_class)
        put_source(cluster)
        storage = {"accessModes": ["ReadWriteOnce"], "storageClassName": "csi", "volumeMode": "Filesystem"}
        pvc = {**storage, "resources": {"requests": {"storage": "2Gi"}}}
        await cluster.data_volume(source=OF_SRC, pvc=pvc, storage=None)
        uid = await target_uid(cluster)
        await cluster.phase("SnapshotForSmartCloneInProgress")
        snapshot = await found(cluster, kinds.VOLUME_SNAPSHOTS, f"tmp-snapshot-{uid}")
        status = {"creationTime": "2026-01-01T00:00:00Z", "readyToUse": True, "restoreSize": "1Gi"}
        cluster.api.put(kinds.VOLUME_SNAPSHOTS, {**snapshot, "status": status})
        made = await found(cluster, CLAIMS, f"tmp-pvc-{uid}")
        assert made["spec"]["resources"]["requests"]["storage"] == "1Gi"
        await cluster.phase("CloneFromSnapshotSourceInProgress")
        volume = await bind(cluster, f"tmp-pvc-{uid}")

        def is_larger(each: JsonObject) -> bool:
            return get_str(each, "spec", "resources", "requests", "storage") == "2Gi"

        grown = await found(cluster, CLAIMS, f"tmp-pvc-{uid}", holds=is_larger)
        pod = await found(cluster, core.PODS, f"prep-{uid}")
        await cluster.phase("PrepClaimInProgress")
        put_bound(cluster, grown, volume, "2Gi")
        await gone(cluster, core.PODS, pod["metadata"]["name"])
        await receive(cluster, volume)
        await cluster.phase("Succeeded")
        await gone(cluster, kinds.VOLUME_SNAPSHOTS, f"tmp-snapshot-{uid}")


@pytest.mark.feature("STO-29")
async def test_clone_of_another_namespace_needs_a_token_of_its_own() -> None:
    async with memory_cluster() as cluster:
        tokens = Tokens(cluster)
        profile(cluster, "csi-clone")
        put_source(cluster, IMAGES, labels={"instancetype.kubevirt.io/default-preference": "theirs"})
        for annotations in ({}, {TOKEN: tokens.short("other")}, {EXTENDED: tokens.short()}):
            await cluster.data_volume(source=OF_IMAGE, annotations=annotations)
            failed = bound_condition("CloneValidationFailed")
            refused = await found(cluster, kinds.DATA_VOLUMES, "dv", holds=failed)
            assert refused["metadata"].get("labels", {}) == {}
            assert cluster.api.list(kinds.VOLUME_CLONE_SOURCES) == []
            assert cluster.api.get(CLAIMS, "dv", NAMESPACE) is None
            await cluster.client.delete(kinds.DATA_VOLUMES, "dv", NAMESPACE)
            await gone(cluster, kinds.DATA_VOLUMES, "dv")


@pytest.mark.feature("STO-29")
async def test_token_that_was_written_by_the_wrong_hand_is_replaced_by_a_right_one() -> None:
    async with memory_cluster() as cluster:
        tokens = Tokens(cluster)
        profile(cluster, "csi-clone")
        put_source(cluster, IMAGES)
        annotations = {TOKEN: tokens.short(), EXTENDED: "x"}
        await cluster.data_volume(source=OF_IMAGE, annotations=annotations)
        await found(cluster, CLAIMS, f"tmp-pvc-{await target_uid(cluster)}", IMAGES)


@pytest.mark.feature("STO-29")
async def test_clone_of_another_namespace_leaves_nothing_there() -> None:
    async with memory_cluster() as cluster:
        tokens = Tokens(cluster)
        profile(cluster, "csi-clone")
        put_source(cluster, IMAGES)
        volume = await cluster.data_volume(source=OF_IMAGE, annotations={TOKEN: tokens.short()})
        uid = await target_uid(cluster)
        source = f"volume-clone-source-{volume['metadata']['uid']}"
        await found(cluster, CLAIMS, f"tmp-pvc-{uid}", IMAGES)
        await found(cluster, kinds.VOLUME_CLONE_SOURCES, source, IMAGES)
        stranger: JsonObject = {"metadata": {"name": "stolen", "namespace": NAMESPACE}}
        claim = await found(cluster, CLAIMS, "dv")
        kept = {"annotations": claim["metadata"]["annotations"], "labels": {}}
        stranger["metadata"] |= kept
        stranger |= {"spec": claim["spec"], "status": {"phase": "Pending"}}
        copied = cluster.api.put(CLAIMS, stranger)
        await found(cluster, CLAIMS, "stolen", holds=annotated(CLONE_PHASE, "Error"))
        assert cluster.api.get(CLAIMS, f"tmp-pvc-{copied['metadata']['uid']}", IMAGES) is None
        await cluster.client.delete(kinds.DATA_VOLUMES, "dv", NAMESPACE)
        await gone(cluster, kinds.DATA_VOLUMES, "dv")
        await gone(cluster, kinds.VOLUME_CLONE_SOURCES, source, IMAGES)
        await cluster.client.delete(CLAIMS, "dv", NAMESPACE)
        await gone(cluster, CLAIMS, "dv")
        await gone(cluster, CLAIMS, f"tmp-pvc-{uid}", IMAGES)


async def test_what_comes_late_for_something_that_is_no_more_is_removed() -> None:
    async with memory_cluster() as cluster:
        old = "2020-01-01T00:00:00Z"
        labels = {"cdi.kubevirt.io/OwnedByUID": "nobody"}
        metadata = {"name": "tmp-pvc-nobody", "namespace": IMAGES, "labels": labels, "creationTimestamp": old}
        cluster.api.put(CLAIMS, {"metadata": metadata, "spec": {"storageClassName": "csi"}})
        owned = {"cdi.kubevirt.io/ownedByDataVolume": f"{NAMESPACE}/dv"}
        source = {"name": "volume-clone-source-nobody", "namespace": IMAGES, "annotations": owned}
        spec = {"source": {"kind": "PersistentVolumeClaim", "name": "src"}}
        cluster.api.put(kinds.VOLUME_CLONE_SOURCES, {"metadata": source, "spec": spec})
        pod_labels = {"cdi.kubevirt.io": "cdi-clone-source"}
        pod_labels["cdi.kubevirt.io/storage.clone.cloneUniqeId"] = "nobody-source-pod"
        pod = {"name": "nobody-source-pod", "namespace": IMAGES, "labels": pod_labels}
        pod["annotations"] = {f"{STORAGE}ownerRef": f"{NAMESPACE}/dv"}
        cluster.api.put(core.PODS, {"metadata": pod, "spec": {}, "status": {"phase": "Pending"}})
        await gone(cluster, CLAIMS, "tmp-pvc-nobody", IMAGES)
        await gone(cluster, kinds.VOLUME_CLONE_SOURCES, "volume-clone-source-nobody", IMAGES)
        await gone(cluster, core.PODS, "nobody-source-pod", IMAGES)


async def test_claims_of_others_are_not_used_as_temporary_ones() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        await cluster.data_volume(source=OF_SRC)
        put_source(cluster)
        uid = await target_uid(cluster)
        mine = await found(cluster, CLAIMS, f"tmp-pvc-{uid}")
        cluster.api.put(CLAIMS, {**mine, "metadata": {**mine["metadata"], "labels": {}}})
        failed = await found(cluster, CLAIMS, "dv", holds=annotated(CLONE_PHASE, "Error"))
        assert "belongs to others" in failed["metadata"]["annotations"]["cdi.kubevirt.io/cloneError"]
        running = f"{STORAGE}condition.running.reason"
        assert failed["metadata"]["annotations"][running] == "Error"


async def test_claim_of_another_namespace_with_the_name_of_a_temporary_one_stops_nothing() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        put_source(cluster)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "src"}}]
        spec = {"volumes": volumes, "containers": [{"name": "c", "volumeMounts": [{"name": "v"}]}]}
        cluster.api.put(core.PODS, {"metadata": {"name": "user", "namespace": NAMESPACE}, "spec": spec})
        await cluster.data_volume(source=OF_SRC)
        uid = await target_uid(cluster)
        await cluster.event("CloneSourceInUse")
        labels = {"cdi.kubevirt.io/OwnedByUID": uid}
        metadata = {"name": f"tmp-pvc-{uid}", "namespace": "theirs", "labels": labels}
        cluster.api.put(CLAIMS, {"metadata": metadata, "spec": {}, "status": {"phase": "Lost"}})
        await cluster.client.delete(core.PODS, "user", NAMESPACE)
        await found(cluster, CLAIMS, f"tmp-pvc-{uid}")


@pytest.mark.feature("STO-44")
async def test_size_of_an_image_is_looked_for_where_none_is_given() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "copy")
        source = put_source(cluster, annotations={f"{STORAGE}contentType": "kubevirt"})
        storage = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "csi"}
        await cluster.data_volume(source=OF_SRC, storage=storage)
        name = f"size-detection-{source['metadata']['uid']}"
        await cluster.phase("CloneScheduled")
        await cluster.run_pod(name, **pod_status("Succeeded", ended("536870912"), "size-detection-volume"))
        claim = await found(cluster, CLAIMS, "dv")
        assert claim["spec"]["resources"]["requests"]["storage"] == "569083167"
        assert claim["metadata"]["annotations"]["cdi.kubevirt.io/permissiveClone"] == "true"
        remembered = await found(cluster, CLAIMS, "src")
        assert remembered["metadata"]["annotations"]["cdi.Kubervirt.io/virtualSize"] == "536870912"
        await gone(cluster, core.PODS, name)


async def test_size_that_makes_no_sense_is_looked_for_again() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "copy")
        source = put_source(cluster, annotations={f"{STORAGE}contentType": "kubevirt"})
        storage = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "csi"}
        await cluster.data_volume(source=OF_SRC, storage=storage)
        name = f"size-detection-{source['metadata']['uid']}"
        first = await found(cluster, core.PODS, name)
        await cluster.run_pod(name, **pod_status("Succeeded", ended("-1"), "size-detection-volume"))
        await cluster.event("ErrUnknown")
        uid = first["metadata"]["uid"]
        await found(cluster, core.PODS, name, holds=lambda each: each["metadata"]["uid"] != uid)


async def test_data_source_leads_to_the_source() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "csi-clone")
        put_source(cluster, labels={"instancetype.kubevirt.io/default-preference": "fedora", "x": "y"})
        reference = {"kind": "DataSource", "name": "ds"}
        await cluster.data_volume(source=None, sourceRef=reference)
        await asyncio.sleep(0)
        content = {"metadata": {"name": "ds", "namespace": NAMESPACE}, "spec": {"source": OF_SRC}}
        cluster.api.put(kinds.DATA_SOURCES, content)
        await found(cluster, CLAIMS, f"tmp-pvc-{await target_uid(cluster)}")
        volume = await found(cluster, kinds.DATA_VOLUMES, "dv")
        assert volume["metadata"]["labels"] == {"instancetype.kubevirt.io/default-preference": "fedora"}


async def test_deleted_target_takes_everything_with_it() -> None:
    async with memory_cluster() as cluster:
        profile(cluster, "copy")
        put_source(cluster)
        await cluster.data_volume(source=OF_SRC)
        uid = await target_uid(cluster)
        temporary = f"tmp-pvc-{uid}"
        await bind(cluster, temporary)
        made = await found(cluster, CLAIMS, temporary)
        await cluster.run_pod(f"cdi-upload-{temporary}", **SERVER_RUNS)
        source_pod = f"{made['metadata']['uid']}-source-pod"
        await found(cluster, core.PODS, source_pod)
        await cluster.client.delete(kinds.DATA_VOLUMES, "dv", NAMESPACE)
        await cluster.client.delete(CLAIMS, "dv", NAMESPACE)
        for kind, name in ((CLAIMS, "dv"), (CLAIMS, temporary), (core.PODS, source_pod)):
            await gone(cluster, kind, name)


async def test_what_was_retained_goes_with_the_target() -> None:
    async with memory_cluster() as cluster:
        labels = {"cdi.kubevirt.io/OwnedByUID": "1"}
        old = {"namespace": NAMESPACE, "creationTimestamp": "2020-01-01T00:00:00Z"}
        retained = {f"{STORAGE}pod.retainAfterCompletion": "true", CLONE_PHASE: "Succeeded"}
        retained["cdi.kubevirt.io/cloneType"] = "copy"
        reference = {"apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "x"}
        spec = {"storageClassName": "csi", "volumeName": "pv"}
        target = {"name": "dv", "uid": "1", "annotations": retained, **old}
        cluster.api.put(CLAIMS, {"metadata": target, "spec": {**spec, "dataSourceRef": reference}})
        cluster.api.put(CLAIMS, {"metadata": {"name": "tmp-pvc-1", "labels": labels, **old}, "spec": spec})
        await cluster.data_volume("other")
        await found(cluster, CLAIMS, "other")
        assert cluster.api.get(CLAIMS, "tmp-pvc-1", NAMESPACE) is not None
        await cluster.client.delete(CLAIMS, "dv", NAMESPACE)
        await gone(cluster, CLAIMS, "tmp-pvc-1")
