"""Claims become volumes and volumes go, with a driver behind a socket that fails in every way."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_csi_driver import NAME, FakeDriver, Fault
from tests.support.waiting import until
from tests.unit.virtplane.storage.csi.cluster import (
    CLAIMS,
    VOLUMES,
    TestCluster,
    claim,
    running,
    storage_class,
)

from kubecore import resources
from kubecore.json import JsonObject

INTENT = "provisioner.virtplane.io/volume-being-created"


@pytest.fixture
def cluster() -> TestCluster:
    return TestCluster()


async def test_a_claim_gets_its_volume_and_the_volume_goes_with_it(
    cluster: TestCluster, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, "provisioner", "--extra-create-metadata"):
        began = time.perf_counter()
        cluster.api.put(CLAIMS, claim())
        volume = await cluster.bound()
        seconds = time.perf_counter() - began
        record_property("claim_to_bound_ms", round(seconds * 1000))
        uid = cluster.claim()["metadata"]["uid"]
        assert volume["metadata"]["name"] == f"pvc-{uid}"
        assert volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == NAME
        assert "external-provisioner.volume.kubernetes.io/finalizer" in volume["metadata"]["finalizers"]
        spec = volume["spec"]
        assert spec["capacity"] == {"storage": "1Gi"}
        assert spec["csi"]["volumeHandle"] == f"id-pvc-{uid}"
        assert spec["csi"]["volumeAttributes"]["made"] == "here"
        assert spec["claimRef"]["uid"] == uid
        assert "nodeAffinity" not in spec
        request = driver.requests("CreateVolume")[0]
        assert request.capacity_range.required_bytes == 2**30
        assert dict(request.parameters) == {
            "csi.storage.k8s.io/pvc/name": "c",
            "csi.storage.k8s.io/pvc/namespace": "ns",
            "csi.storage.k8s.io/pv/name": f"pvc-{uid}",
        }
        await cluster.event("Provisioning", 'External provisioner is provisioning volume for claim "ns/c"')
        await cluster.event("ProvisioningSucceeded", f"Successfully provisioned volume pvc-{uid}")
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "c", "ns")
        await until(lambda: not cluster.api.list(VOLUMES))
        assert not driver.volumes
    assert driver.methods().count("CreateVolume") == 1
    assert seconds < 2.0  # a limit for busy machines; the figure is recorded


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED", "CANCELLED"])
async def test_an_answer_that_is_lost_is_asked_for_again_under_the_same_name(
    cluster: TestCluster, tmp_path: Path, code: str
) -> None:
    driver = FakeDriver(faults={"CreateVolume": [Fault(code, happens=True), Fault(code)]})
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
    assert len({request.name for request in driver.requests("CreateVolume")}) == 1
    assert list(driver.created.values()) == [1]


async def test_a_claim_that_is_deleted_while_its_volume_may_be_there_leaves_nothing_behind(
    cluster: TestCluster, tmp_path: Path
) -> None:
    lost = [Fault("UNAVAILABLE", happens=True), *[Fault("UNAVAILABLE")] * 4]
    driver = FakeDriver(faults={"CreateVolume": lost})
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        await until(lambda: len(driver.requests("CreateVolume")) >= 2)
        assert INTENT in cluster.claim()["metadata"]["finalizers"]
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "c", "ns")
        await until(lambda: not cluster.claim() and not cluster.api.list(VOLUMES))
        assert not driver.volumes


async def test_a_final_error_lets_the_claim_go(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(choose=lambda method: Fault("INTERNAL") if method == "CreateVolume" else None)
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        await cluster.event("ProvisioningFailed", "rpc error: code = Internal desc = told to fail")
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "c", "ns")
        await until(lambda: not cluster.claim())


async def test_a_request_that_can_never_be_met_is_not_repeated_soon(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = FakeDriver(choose=lambda method: Fault("INVALID_ARGUMENT") if method == "CreateVolume" else None)

    def times_asked_for(name: str) -> int:
        volume = f"pvc-{cluster.claim(name)['metadata']['uid']}"
        return [request.name for request in driver.requests("CreateVolume")].count(volume)

    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        await cluster.event("ProvisioningFailed", "infeasible error. Retries will be delayed.")
        found = cluster.claim()
        for value in "12345":  # whatever users do with the claim meanwhile
            found["metadata"].setdefault("annotations", {})["a"] = value
            found = cluster.api.put(CLAIMS, found)
        cluster.api.put(CLAIMS, claim("later"))  # claims are reconciled in the order of their changes
        await until(lambda: times_asked_for("later"))
        assert times_asked_for("c") == 1
        another = storage_class(metadata={"name": "fast", "uid": "another"})
        cluster.api.put(resources.STORAGE_CLASSES, another)
        await until(lambda: times_asked_for("c") == 2)


async def test_a_volume_that_is_too_small_is_deleted_again(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(smaller_by=1)
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        await cluster.event("ProvisioningFailed", "created volume capacity 1073741823 less than requested")
        await until(lambda: "DeleteVolume" in driver.methods())
        assert not cluster.api.list(VOLUMES)


async def test_secrets_of_the_class_go_to_the_driver_and_no_reserved_parameter_does(
    cluster: TestCluster, tmp_path: Path
) -> None:
    prefix = "csi.storage.k8s.io/"
    parameters = {
        "pool": "p",
        f"{prefix}fstype": "xfs",
        f"{prefix}provisioner-secret-name": "of-${pvc.name}",
        f"{prefix}provisioner-secret-namespace": "${pvc.namespace}",
        f"{prefix}node-stage-secret-name": "stage",
        f"{prefix}node-stage-secret-namespace": "ns",
    }
    cluster.api.put(resources.STORAGE_CLASSES, storage_class(parameters=parameters, mountOptions=["noatime"]))
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        await cluster.event("ProvisioningFailed", "error getting secret of-c in namespace ns: ")
        data = {"k": base64.b64encode(b"v").decode()}
        cluster.api.put(resources.SECRETS, {"metadata": {"name": "of-c", "namespace": "ns"}, "data": data})
        volume = await cluster.bound()
        request = driver.requests("CreateVolume")[0]
        assert (dict(request.parameters), dict(request.secrets)) == ({"pool": "p"}, {"k": "v"})
        assert request.volume_capabilities[0].mount.fs_type == "xfs"
        assert list(request.volume_capabilities[0].mount.mount_flags) == ["noatime"]
        assert volume["spec"]["csi"]["fsType"] == "xfs"
        assert volume["spec"]["csi"]["nodeStageSecretRef"] == {"name": "stage", "namespace": "ns"}
        assert volume["spec"]["mountOptions"] == ["noatime"]
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "c", "ns")
        await until(lambda: not cluster.api.list(VOLUMES))
        assert dict(driver.requests("DeleteVolume")[0].secrets) == {"k": "v"}


def _place_node(cluster: TestCluster, name: str) -> None:
    cluster.api.put(resources.NODES, {"metadata": {"name": name, "labels": {"topo/node": name}}})
    spec = {"drivers": [{"name": NAME, "nodeID": name, "topologyKeys": ["topo/node"]}]}
    cluster.api.put(resources.CSI_NODES, {"metadata": {"name": name}, "spec": spec})


async def test_a_full_node_makes_room_for_another_choice(cluster: TestCluster, tmp_path: Path) -> None:
    cluster.api.put(resources.STORAGE_CLASSES, storage_class(volumeBindingMode="WaitForFirstConsumer"))
    for node in ("n1", "n2"):
        _place_node(cluster, node)
    driver = FakeDriver(topology={"topo/node": "n2"}, faults={"CreateVolume": [Fault("RESOURCE_EXHAUSTED")]})
    chosen = {"volume.kubernetes.io/selected-node": "n1"}
    async with running(cluster, driver, tmp_path, "provisioner", "--strict-topology"):
        waiting = claim()
        waiting["metadata"]["annotations"] = dict(chosen)
        cluster.api.put(CLAIMS, waiting)
        await until(
            lambda: (
                not chosen.keys() & cluster.claim()["metadata"].get("annotations", {}).keys()
                and INTENT not in cluster.claim()["metadata"].get("finalizers", [])
            )
        )
        found = cluster.claim()
        found["metadata"].setdefault("annotations", {})["volume.kubernetes.io/selected-node"] = "n2"
        cluster.api.put(CLAIMS, found)
        volume = await cluster.bound()
    asked = [
        [dict(each.segments) for each in request.accessibility_requirements.requisite]
        for request in driver.requests("CreateVolume")
    ]
    assert asked == [[{"topo/node": "n1"}], [{"topo/node": "n2"}]]
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    expression = {"key": "topo/node", "operator": "In", "values": ["n2"]}
    assert terms == [{"matchExpressions": [expression]}]


async def test_the_provisioner_of_a_node_takes_its_own_claims_and_no_others(
    cluster: TestCluster, tmp_path: Path
) -> None:
    _place_node(cluster, "n1")
    driver = FakeDriver(topology={"topo/node": "n1"})
    arguments = ("--node-deployment", "--strict-topology", "--node-deployment-base-delay=10ms")
    async with running(cluster, driver, tmp_path, "provisioner", *arguments):
        other = claim("other")
        other["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "n2"}
        cluster.api.put(CLAIMS, other)
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        assert cluster.claim()["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n1"
    assert cluster.claim("other")["status"]["phase"] == "Pending"
    assert len(driver.requests("CreateVolume")) == 1
    assert driver.requests("GetCapacity")


async def test_a_clone_protects_its_source_until_it_is_made(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    source = {"kind": "PersistentVolumeClaim", "name": "c"}
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        volume = await cluster.bound()
        driver.faults["CreateVolume"] = [Fault("UNAVAILABLE")] * 3
        cluster.api.put(CLAIMS, claim("small", "1Mi", dataSource=source))
        await cluster.event("ProvisioningFailed", "requested 1048576 but source is 1073741824")
        cluster.api.put(CLAIMS, claim("copy", "2Gi", dataSource=source))
        await until(lambda: len(driver.requests("CreateVolume")) >= 2)
        protection = "provisioner.storage.kubernetes.io/cloning-protection"
        assert protection in cluster.claim()["metadata"]["finalizers"]
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "small", "ns")
            await client.delete(CLAIMS, "c", "ns")
        await cluster.bound("copy")
        handle = driver.requests("CreateVolume")[-1].volume_content_source.volume.volume_id
        assert handle == volume["spec"]["csi"]["volumeHandle"]
        await until(lambda: not cluster.claim() and len(cluster.api.list(VOLUMES)) == 1)


async def test_a_source_of_another_kind_is_left_to_whoever_fills_it(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = FakeDriver()
    reference = {"apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "i"}
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim(dataSourceRef=reference))
        await cluster.event("Provisioning", "Assuming an external populator will provision the volume")
        async with cluster.api.client() as client:
            for number in range(5):
                told = {"metadata": {"annotations": {"progress": str(number)}}}
                await client.patch(CLAIMS, "c", told, "ns", type="merge")
                # A claim that comes later shows that this one was looked at again.
                cluster.api.put(CLAIMS, claim(f"after-{number}"))
                await cluster.bound(f"after-{number}")
    assert len(driver.requests("CreateVolume")) == 5
    told_of = [each for each in cluster.api.list(resources.EVENTS) if each["involvedObject"]["name"] == "c"]
    assert [each["count"] for each in told_of if each["reason"] == "Provisioning"] == [1, 1]


async def test_an_attached_volume_is_not_deleted(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, "provisioner"):
        cluster.api.put(CLAIMS, claim())
        volume = await cluster.bound()
        name = volume["metadata"]["name"]
        source = {"persistentVolumeName": name}
        spec = {"attacher": NAME, "nodeName": "n1", "source": source}
        cluster.api.put(resources.VOLUME_ATTACHMENTS, {"metadata": {"name": "va"}, "spec": spec})
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "c", "ns")
        await cluster.event("VolumeFailedDelete", f"persistentvolume {name} is still attached to node n1")
        assert driver.volumes
        cluster.api.remove(resources.VOLUME_ATTACHMENTS, "va")
        await until(lambda: not cluster.api.list(VOLUMES))
        assert not driver.volumes


async def test_capacity_is_published_for_each_class_and_place(cluster: TestCluster, tmp_path: Path) -> None:
    waiting = storage_class(volumeBindingMode="WaitForFirstConsumer")
    cluster.api.put(resources.STORAGE_CLASSES, waiting)
    pod: JsonObject = {
        "metadata": {
            "name": "pod",
            "namespace": "ns",
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
            ],
        },
        "spec": {},
    }
    cluster.api.put(resources.PODS, pod)
    daemon_set = cluster.api.put(resources.DAEMON_SETS, {"metadata": {"name": "d", "namespace": "ns"}})
    for node in ("n1", "n2"):
        _place_node(cluster, node)
    driver = FakeDriver(topology={"topo/node": "n1"})
    arguments = ("--enable-capacity", "--capacity-poll-interval=20ms")
    async with running(cluster, driver, tmp_path, "provisioner", *arguments):
        await until(lambda: len(cluster.api.list(resources.CSI_STORAGE_CAPACITIES)) == 2)
        found = cluster.api.list(resources.CSI_STORAGE_CAPACITIES)
        places = [each["nodeTopology"]["matchLabels"]["topo/node"] for each in found]
        assert sorted(places) == ["n1", "n2"]
        for each in found:
            assert each["capacity"] == "100Gi"
            assert each["maximumVolumeSize"] == "1Ti"
            assert each["metadata"]["labels"] == {
                "csi.storage.k8s.io/drivername": NAME,
                "csi.storage.k8s.io/managed-by": "external-provisioner",
            }
            assert each["metadata"]["ownerReferences"][0]["uid"] == daemon_set["metadata"]["uid"]
        driver.capacity_bytes = 2**30
        await until(
            lambda: (
                {each["capacity"] for each in cluster.api.list(resources.CSI_STORAGE_CAPACITIES)} == {"1Gi"}
            )
        )
        cluster.api.remove(resources.CSI_NODES, "n2")
        await until(lambda: len(cluster.api.list(resources.CSI_STORAGE_CAPACITIES)) == 1)
        cluster.api.remove(resources.STORAGE_CLASSES, "fast")
        await until(lambda: not cluster.api.list(resources.CSI_STORAGE_CAPACITIES))
