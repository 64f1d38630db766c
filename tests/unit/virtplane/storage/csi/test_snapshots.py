"""Snapshots: the snapshot controller and the driver's side of it, together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_csi_driver import NAME, FakeDriver, Fault
from tests.support.waiting import until
from tests.unit.virtplane.storage.csi.cluster import (
    CLAIMS,
    CONTENTS,
    SNAPSHOTS,
    VOLUMES,
    TestCluster,
    claim,
    running,
)

from kubecore.json import JsonObject, get_object, get_str
from virtplane.api import resources as kinds

PARTS = ("provisioner,snapshotter", "--extra-create-metadata")
PREFIX = "snapshot.storage.kubernetes.io/"


@pytest.fixture
def cluster() -> TestCluster:
    return TestCluster()


def _snapshot(name: str = "s", **spec: Any) -> JsonObject:
    spec.setdefault("source", {"persistentVolumeClaimName": "c"})
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}


async def _delete(cluster: TestCluster, name: str = "s") -> None:
    async with cluster.api.client() as client:
        await client.delete(SNAPSHOTS, name, "ns")


async def test_a_snapshot_is_taken_and_goes_with_its_object(
    cluster: TestCluster, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(CLAIMS, claim())
        volume = await cluster.bound()
        cluster.api.put(SNAPSHOTS, _snapshot(volumeSnapshotClassName="snap"))
        snapshot = await cluster.ready()
        uid = snapshot["metadata"]["uid"]
        assert snapshot["status"] == {
            "boundVolumeSnapshotContentName": f"snapcontent-{uid}",
            "creationTime": "2023-11-14T22:13:20Z",
            "readyToUse": True,
            "restoreSize": "1Gi",
        }
        content = cluster.api.get(CONTENTS, f"snapcontent-{uid}") or {}
        assert content["spec"]["source"] == {"volumeHandle": volume["spec"]["csi"]["volumeHandle"]}
        assert content["spec"]["sourceVolumeMode"] == "Filesystem"
        assert content["status"]["snapshotHandle"] == f"id-snapshot-{uid}"
        assert PREFIX + "volumesnapshotcontent-bound-protection" in content["metadata"]["finalizers"]
        await until(
            lambda: (
                PREFIX + "volumesnapshot-being-created"
                not in get_object(cluster.api.list(CONTENTS)[0], "metadata", "annotations")
            )
        )
        wanted = {PREFIX + "volumesnapshot-as-source-protection", PREFIX + "volumesnapshot-bound-protection"}
        await until(lambda: wanted <= set(cluster.snapshot()["metadata"]["finalizers"]))
        source = PREFIX + "pvc-as-source-protection"
        await until(lambda: source not in cluster.claim()["metadata"].get("finalizers", []))
        request = driver.requests("CreateSnapshot")[0]
        assert dict(request.parameters)["csi.storage.k8s.io/volumesnapshot/name"] == "s"
        for reason in ("CreatingSnapshot", "SnapshotCreated", "SnapshotReady"):
            await cluster.event(reason)
        await _delete(cluster)
        await until(lambda: not cluster.snapshot() and not cluster.api.list(CONTENTS))
        assert not driver.snapshots


async def test_the_default_class_is_that_of_the_volumes_driver(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        cluster.api.put(SNAPSHOTS, _snapshot())
        await cluster.event("SetDefaultSnapshotClassFailed", "cannot find default snapshot class")
        for name, of in (("other", "another.example.com"), ("ours", NAME)):
            metadata = {"name": name, "annotations": {PREFIX + "is-default-class": "true"}}
            document = {"metadata": metadata, "driver": of, "deletionPolicy": "Retain"}
            cluster.api.put(kinds.VOLUME_SNAPSHOT_CLASSES, document)
        assert (await cluster.ready())["spec"]["volumeSnapshotClassName"] == "ours"
        await _delete(cluster)
        await until(lambda: not cluster.snapshot())
        assert driver.snapshots  # its class retains it
        assert cluster.api.list(CONTENTS)


async def test_a_snapshot_is_asked_for_until_it_is_ready(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(
        snapshots_take=2,
        faults={"CreateSnapshot": [Fault("UNAVAILABLE", happens=True), Fault("INTERNAL", "no")]},
    )
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        cluster.api.put(SNAPSHOTS, _snapshot(volumeSnapshotClassName="snap"))
        await cluster.event("SnapshotCreationFailed", "Failed to create snapshot: failed to take snapshot of")
        snapshot = await cluster.ready()
        assert "error" not in snapshot["status"]
        assert list(driver.created.values()) == [1, 1]


async def test_a_snapshot_that_is_deleted_while_it_may_be_there_leaves_nothing(
    cluster: TestCluster, tmp_path: Path
) -> None:
    lost = [Fault("DEADLINE_EXCEEDED", happens=True), *[Fault("DEADLINE_EXCEEDED")] * 5]
    driver = FakeDriver(faults={"CreateSnapshot": lost})
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        cluster.api.put(SNAPSHOTS, _snapshot(volumeSnapshotClassName="snap"))
        await until(lambda: len(driver.requests("CreateSnapshot")) >= 2)
        await _delete(cluster)
        await until(lambda: not cluster.snapshot() and not cluster.api.list(CONTENTS))
        assert not driver.snapshots


async def test_a_snapshot_that_exists_already_is_bound(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    reference = {"name": "s", "namespace": "ns"}
    spec = {
        "deletionPolicy": "Delete",
        "driver": NAME,
        "source": {"snapshotHandle": "id-old"},
        "volumeSnapshotRef": reference,
    }
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        name = driver.requests("CreateVolume")[0].name
        driver._CreateSnapshot(_Request(name="old", source_volume_id=f"id-{name}"))
        driver.snapshots["old"].ready_to_use = True
        cluster.api.put(CONTENTS, {"metadata": {"name": "old"}, "spec": spec})
        cluster.api.put(SNAPSHOTS, _snapshot(source={"volumeSnapshotContentName": "old"}))
        snapshot = await cluster.ready()
        content = cluster.api.get(CONTENTS, "old") or {}
        assert content["spec"]["volumeSnapshotRef"]["uid"] == snapshot["metadata"]["uid"]
        assert snapshot["status"]["restoreSize"] == "1Gi"
        cluster.api.put(SNAPSHOTS, _snapshot("thief", source={"volumeSnapshotContentName": "old"}))
        await cluster.event("SnapshotContentMisbound", "VolumeSnapshotContent [old] is bound to a different")
        await _delete(cluster)
        await until(lambda: not cluster.snapshot() and not cluster.api.list(CONTENTS))
        assert not driver.snapshots


class _Request:
    def __init__(self, name: str, source_volume_id: str) -> None:
        self.name = name
        self.source_volume_id = source_volume_id


async def test_a_volume_is_made_of_a_snapshot_which_stays_until_then(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = FakeDriver()
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(CLAIMS, claim())
        await cluster.bound()
        cluster.api.put(SNAPSHOTS, _snapshot(volumeSnapshotClassName="snap"))
        cluster.api.put(CLAIMS, claim("early", dataSource={**source, "name": "none"}))
        await cluster.event("ProvisioningFailed", "error getting snapshot none from api server: ")
        await cluster.ready()
        cluster.api.put(CLAIMS, claim("block", dataSource=source, volumeMode="Block"))
        await cluster.event("ProvisioningFailed", "modifies the mode of the source volume")
        async with cluster.api.client() as client:
            await client.delete(CLAIMS, "block", "ns")
        driver.faults["CreateVolume"] = [Fault("ABORTED")] * 3
        cluster.api.put(CLAIMS, claim("copy", dataSource=source))
        await until(lambda: driver.requests("CreateVolume")[-1].HasField("volume_content_source"))
        await _delete(cluster)
        await cluster.bound("copy")
        asked = driver.requests("CreateVolume")[-1].volume_content_source.snapshot.snapshot_id
        assert asked.startswith("id-snapshot-")
        await until(lambda: len(cluster.api.list(VOLUMES)) == 2)


async def test_what_a_snapshot_lacks_is_said_in_its_status(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(SNAPSHOTS, _snapshot(volumeSnapshotClassName="snap"))
        cluster.api.put(SNAPSHOTS, _snapshot("lost", source={"volumeSnapshotContentName": "none"}))
        cluster.api.put(SNAPSHOTS, _snapshot("classless", volumeSnapshotClassName="none"))
        for name, text in (
            ("s", "failed to retrieve PVC c from the lister"),
            ("lost", "VolumeSnapshotContent is missing"),
            (
                "classless",
                "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage",
            ),
        ):
            await until(partial(cluster.error, name))
            assert text in get_str(cluster.snapshot(name), "status", "error", "message")
        cluster.api.put(CLAIMS, claim())
        await cluster.ready()  # the claim's own events bring the snapshot back
