"""Claims grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_csi_driver import EVERYTHING, NAME, FakeDriver, Fault
from tests.support.waiting import until
from tests.unit.virtplane.storage.csi.cluster import CLAIMS, TestCluster, claim, running

from kubecore import resources
from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import decode
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.storage.csi import resizing

EXPAND = "ControllerExpandVolume"


def _next(
    wish: str,
    present: str,
    status: str = "",
    recorded: str = "",
    *,
    refused: bool = False,
    grows: bool = True,
) -> str | None:
    """The size to ask for, with a mark where the status must be written first."""
    document: JsonObject = claim(size=wish)
    if status:
        document["status"]["allocatedResourceStatuses"] = {"storage": status}
    if recorded:
        document["status"]["allocatedResources"] = {"storage": recorded}
    volume = decode(PersistentVolume, {"spec": {"capacity": {"storage": present}}})
    found = resizing.next_growth(
        decode(PersistentVolumeClaim, document), volume, refused=refused, driver_grows=grows
    )
    return None if found is None else str(found.size) + ("" if found.is_recorded else "!")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"wish": "2Gi", "present": "1Gi"}, "2Gi!"),
        ({"wish": "3Gi", "present": "1Gi", "status": "ControllerResizeInProgress", "recorded": "2Gi"}, "2Gi"),
        (
            {
                "wish": "3Gi",
                "present": "1Gi",
                "status": "ControllerResizeInProgress",
                "recorded": "2Gi",
                "refused": True,
            },
            "3Gi!",
        ),
        (
            {"wish": "2Gi", "present": "1Gi", "status": "ControllerResizeInfeasible", "recorded": "9T"},
            "2Gi!",
        ),
        ({"wish": "3Gi", "present": "2Gi", "status": "NodeResizePending", "recorded": "2Gi"}, None),
        ({"wish": "3Gi", "present": "2Gi", "status": "NodeResizeInfeasible", "recorded": "2Gi"}, "2Gi"),
        ({"wish": "2Gi", "present": "2Gi", "status": "NodeResizeInProgress", "recorded": "2Gi"}, None),
        ({"wish": "2Gi", "present": "2Gi", "status": "NodeResizeInfeasible", "grows": False}, "2Gi!"),
        ({"wish": "2Gi", "present": "2Gi", "status": "ControllerResizeInProgress", "recorded": "2Gi"}, "2Gi"),
        ({"wish": "2Gi", "present": "3Gi", "recorded": "3Gi"}, "3Gi"),
    ],
)
def test_a_size_that_may_be_under_way_is_asked_for_until_it_is_known(
    arguments: dict[str, Any], expected: str | None
) -> None:
    assert _next(**arguments) == expected


def _grow(cluster: TestCluster, size: str) -> None:
    found = cluster.claim()
    found["spec"]["resources"]["requests"]["storage"] = size
    cluster.api.put(CLAIMS, found)


def _conditions(cluster: TestCluster) -> dict[str, str]:
    found = get_object(cluster.claim(), "status").get("conditions", [])
    return {each["type"]: each.get("message", "") for each in found}


async def test_a_volume_grows(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, "provisioner,resizer"):
        cluster.api.put(CLAIMS, claim())
        volume = await cluster.bound()
        _grow(cluster, "2Gi")
        await until(lambda: cluster.claim()["status"]["capacity"]["storage"] == "2Gi")
        status = cluster.claim()["status"]
        assert status["allocatedResources"] == {"storage": "2Gi"}
        assert not status.get("conditions")
        assert not status.get("allocatedResourceStatuses")
        annotations = cluster.claim()["metadata"]["annotations"]
        assert annotations["volume.kubernetes.io/node-expansion-not-required"] == "true"
        assert cluster.volume()["spec"]["capacity"] == {"storage": "2Gi"}
        name = volume["metadata"]["name"]
        await cluster.event("Resizing", f"External resizer is resizing volume {name}")
        await cluster.event("VolumeResizeSuccessful", "Resize volume succeeded")
    assert {request.capacity_range.required_bytes for request in driver.requests(EXPAND)} == {2 * 2**30}


async def test_the_node_does_its_part(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(node_expansion=True)
    async with running(cluster, driver, tmp_path, "provisioner,resizer"):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        _grow(cluster, "2Gi")
        await cluster.event("FileSystemResizeRequired", "Require file system resize of volume on node")
        status = cluster.claim()["status"]
        assert status["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
        assert status["capacity"] == {"storage": "1Gi"}
        assert _conditions(cluster)["FileSystemResizePending"] == resizing.PENDING_MESSAGE
        former = "volume.alpha.kubernetes.io/pre-resize-capacity"
        assert cluster.volume()["metadata"]["annotations"][former] == "1Gi"
        done = cluster.claim()
        done["status"] = {"phase": "Bound", "capacity": {"storage": "2Gi"}}
        cluster.api.put(CLAIMS, done)
        await until(lambda: former not in cluster.volume()["metadata"]["annotations"])
    assert {request.capacity_range.required_bytes for request in driver.requests(EXPAND)} == {2 * 2**30}


async def test_a_size_that_cannot_be_given_is_taken_back(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(faults={EXPAND: [Fault("OUT_OF_RANGE", "too much")]})
    async with running(cluster, driver, tmp_path, "provisioner,resizer"):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        _grow(cluster, "9Ti")
        await cluster.event("VolumeResizeFailed", f'by resizer "{NAME}" failed: rpc error: code = OutOfRange')
        statuses = cluster.claim()["status"]["allocatedResourceStatuses"]
        assert statuses == {"storage": "ControllerResizeInfeasible"}
        assert "desc = too much" in _conditions(cluster)["ControllerResizeError"]
        assert len(driver.requests(EXPAND)) == 1  # it is not asked for again soon
        _grow(cluster, "2Gi")
        await until(lambda: cluster.claim()["status"]["capacity"]["storage"] == "2Gi")
        assert not _conditions(cluster)


async def test_an_answer_that_is_lost_is_asked_for_again(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(faults={EXPAND: [Fault("DEADLINE_EXCEEDED", happens=True)] * 2})
    async with running(cluster, driver, tmp_path, "provisioner,resizer"):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        _grow(cluster, "2Gi")
        await until(lambda: cluster.claim()["status"]["capacity"]["storage"] == "2Gi")
    assert {request.capacity_range.required_bytes for request in driver.requests(EXPAND)} == {2 * 2**30}
    assert len(driver.requests(EXPAND)) >= 3


async def test_a_volume_in_use_waits_for_a_driver_that_grows_no_such(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = FakeDriver(faults={EXPAND: [Fault("FAILED_PRECONDITION")]})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"volumes": volumes}}
    async with running(cluster, driver, tmp_path, "provisioner,resizer"):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        cluster.api.put(resources.PODS, pod)
        _grow(cluster, "2Gi")
        await cluster.event("VolumeResizeFailed", f"CSI driver {NAME} only supports offline expansion")
        assert len(driver.requests(EXPAND)) == 1
        cluster.api.remove(resources.PODS, "p", "ns")
        await until(lambda: cluster.claim()["status"]["capacity"]["storage"] == "2Gi")


async def test_a_driver_of_which_only_nodes_grow_volumes(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(controller=EVERYTHING - {"EXPAND_VOLUME"})
    async with running(cluster, driver, tmp_path, "provisioner,resizer"):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        _grow(cluster, "2Gi")
        await cluster.event("FileSystemResizeRequired")
        assert cluster.volume()["spec"]["capacity"] == {"storage": "2Gi"}
    assert EXPAND not in driver.methods()


@pytest.fixture
def cluster() -> TestCluster:
    return TestCluster()
