"""Snapshots of several volumes at one moment: the snapshot controller and the driver's side, together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_csi_driver import NAME, FakeDriver, Fault
from tests.support.waiting import until
from tests.unit.virtplane.storage.csi.cluster import (
    CLAIMS,
    CONTENTS,
    GROUP_CONTENTS,
    GROUPS,
    SNAPSHOTS,
    TestCluster,
    claim,
    running,
)

from kubecore import resources
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds

GATE = "--feature-gates=CSIVolumeGroupSnapshot=true"
PARTS = ("provisioner,snapshotter", GATE, "--extra-create-metadata")
PREFIX = "groupsnapshot.storage.kubernetes.io/"
SELECTOR = {"matchLabels": {"app": "db"}}


@pytest.fixture
def cluster() -> TestCluster:
    return TestCluster()


def _labelled(name: str, **labels: str) -> JsonObject:
    document = claim(name)
    document["metadata"]["labels"] = labels
    return document


def _group(name: str = "g", class_name: str | None = "snap", **source: Any) -> JsonObject:
    spec: JsonObject = {"source": source or {"selector": SELECTOR}}
    if class_name is not None:
        spec["volumeGroupSnapshotClassName"] = class_name
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}


async def _database(cluster: TestCluster) -> set[str]:
    """Two claims of a database, one of something else; gives the database's volumes."""
    cluster.api.put(CLAIMS, _labelled("data", app="db"))
    cluster.api.put(CLAIMS, _labelled("log", app="db"))
    cluster.api.put(CLAIMS, _labelled("web", app="web"))
    await cluster.bound("web")
    found = [await cluster.bound(name) for name in ("data", "log")]
    return {volume["spec"]["csi"]["volumeHandle"] for volume in found}


def _of(cluster: TestCluster, name: str = "g") -> JsonObject:
    return cluster.api.get(GROUPS, name, "ns") or {}


async def _ready(cluster: TestCluster, name: str = "g") -> JsonObject:
    await until(lambda: get_object(_of(cluster, name), "status").get("readyToUse"))
    return _of(cluster, name)


async def _error(cluster: TestCluster, text: str, name: str = "g") -> None:
    await until(lambda: text in get_str(_of(cluster, name), "status", "error", "message"))


async def _delete(cluster: TestCluster, kind: resources.ResourceType = GROUPS, name: str = "g") -> None:
    async with cluster.api.client() as client:
        await client.delete(kind, name, "ns")


def _left(cluster: TestCluster) -> list[JsonObject]:
    return [each for kind in (GROUPS, GROUP_CONTENTS, SNAPSHOTS, CONTENTS) for each in cluster.api.list(kind)]


async def test_a_group_is_taken_of_the_selected_claims_and_goes_with_its_object(
    cluster: TestCluster, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        volumes = await _database(cluster)
        cluster.api.put(GROUPS, _group())
        group = await _ready(cluster)
        uid = group["metadata"]["uid"]
        assert group["status"] == {
            "boundVolumeGroupSnapshotContentName": f"groupsnapcontent-{uid}",
            "creationTime": "2023-11-14T22:13:20Z",
            "readyToUse": True,
        }
        assert meta.finalizers(group) == [PREFIX + "volumegroupsnapshot-bound-protection"]
        content = cluster.api.get(GROUP_CONTENTS, f"groupsnapcontent-{uid}") or {}
        assert set(content["spec"]["source"]["volumeHandles"]) == volumes
        assert content["status"]["volumeGroupSnapshotHandle"] == f"id-groupsnapshot-{uid}"
        (request,) = driver.requests("CreateVolumeGroupSnapshot")
        assert request.name == f"groupsnapshot-{uid}"
        assert dict(request.parameters)["csi.storage.k8s.io/volumegroupsnapshot/name"] == "g"
        members = cluster.api.list(SNAPSHOTS)
        sources = {each["spec"]["source"]["persistentVolumeClaimName"] for each in members}
        assert sources == {"data", "log"}
        for each in members:
            name = meta.name(each)
            assert [owner["uid"] for owner in meta.owner_references(each)] == [uid]
            snapshot = await cluster.ready(name)
            assert snapshot["status"]["volumeGroupSnapshotName"] == "g"
            bound = cluster.api.get(CONTENTS, snapshot["status"]["boundVolumeSnapshotContentName"]) or {}
            assert bound["spec"]["volumeSnapshotRef"]["uid"] == meta.uid(snapshot)
            assert bound["status"]["volumeGroupSnapshotHandle"] == f"id-groupsnapshot-{uid}"
            assert bound["status"]["snapshotHandle"].startswith(f"id-groupsnapshot-{uid}-")
        for reason in ("CreatingGroupSnapshot", "GroupSnapshotCreated", "GroupSnapshotReady"):
            await cluster.event(reason)
        await _delete(cluster)
        await until(lambda: not _left(cluster))
        assert not driver.groups
        assert not driver.requests("CreateSnapshot")
        assert not driver.requests("DeleteSnapshot")


async def test_a_volume_is_made_of_a_member(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group())
        await _ready(cluster)
        member = meta.name(cluster.api.list(SNAPSHOTS)[0])
        await cluster.ready(member)
        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": member}
        driver.faults["CreateVolume"] = [Fault("ABORTED")] * 3
        cluster.api.put(CLAIMS, claim("copy", dataSource=source))
        await until(lambda: driver.requests("CreateVolume")[-1].HasField("volume_content_source"))
        await _delete(cluster)
        await cluster.bound("copy")
        asked = driver.requests("CreateVolume")[-1].volume_content_source.snapshot.snapshot_id
        assert asked.startswith("id-groupsnapshot-")


async def test_a_member_goes_after_its_group_only(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group())
        await _ready(cluster)
        member = meta.name(cluster.api.list(SNAPSHOTS)[0])
        await cluster.ready(member)
        await _delete(cluster, SNAPSHOTS, member)
        await cluster.event("SnapshotDeletePending", "is not allowed as it belongs to group snapshot ns/g")
        assert len(driver.groups) == 1
        await _delete(cluster)
        await until(lambda: not _left(cluster))


async def test_a_group_that_is_deleted_while_it_may_be_there_leaves_nothing(
    cluster: TestCluster, tmp_path: Path
) -> None:
    lost = [Fault("DEADLINE_EXCEEDED", happens=True), *[Fault("DEADLINE_EXCEEDED")] * 5]
    driver = FakeDriver(takes_groups=True, faults={"CreateVolumeGroupSnapshot": lost})
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group())
        await until(lambda: len(driver.requests("CreateVolumeGroupSnapshot")) >= 2)
        await _delete(cluster)
        await until(lambda: not _left(cluster))
        assert not driver.groups


async def test_a_group_is_asked_for_until_it_is_ready(cluster: TestCluster, tmp_path: Path) -> None:
    faults = [Fault("UNAVAILABLE", happens=True), Fault("INTERNAL", "no")]
    driver = FakeDriver(takes_groups=True, snapshots_take=3, faults={"CreateVolumeGroupSnapshot": faults})
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group())
        failure = "Failed to create group snapshot: failed to take group snapshot of the volumes ["
        await cluster.event("GroupSnapshotCreationFailed", failure)
        group = await _ready(cluster)
        assert "error" not in group["status"]
        for each in cluster.api.list(SNAPSHOTS):
            await cluster.ready(meta.name(each))
        assert set(driver.created.values()) == {1}


async def test_what_its_class_retains_stays(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group(class_name=None))
        await cluster.event("SetDefaultGroupSnapshotClassFailed", "cannot find default group snapshot class")
        metadata = {"name": "kept", "annotations": {PREFIX + "is-default-class": "true"}}
        document = {"metadata": metadata, "driver": NAME, "deletionPolicy": "Retain"}
        cluster.api.put(kinds.VOLUME_GROUP_SNAPSHOT_CLASSES, document)
        assert (await _ready(cluster))["spec"]["volumeGroupSnapshotClassName"] == "kept"
        for each in cluster.api.list(SNAPSHOTS):
            await cluster.ready(meta.name(each))
        await _delete(cluster)
        await until(lambda: not cluster.api.list(GROUPS) and not cluster.api.list(SNAPSHOTS))
        assert len(driver.groups) == 1
        assert len(cluster.api.list(GROUP_CONTENTS)) == 1
        assert len(cluster.api.list(CONTENTS)) == 2


async def test_a_group_that_exists_already_is_bound_and_adopts_its_members(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        driver.make_group("old", ["v1"])
        handles = {"volumeGroupSnapshotHandle": "id-old", "volumeSnapshotHandles": ["id-old-0"]}
        spec = {
            "deletionPolicy": "Delete",
            "driver": NAME,
            "source": {"groupSnapshotHandles": handles},
            "volumeGroupSnapshotRef": {"name": "g", "namespace": "ns"},
        }
        cluster.api.put(GROUP_CONTENTS, {"metadata": {"name": "old"}, "spec": spec})
        member = {
            "deletionPolicy": "Delete",
            "driver": NAME,
            "source": {"snapshotHandle": "id-old-0"},
            "volumeSnapshotRef": {"name": "s", "namespace": "ns"},
        }
        cluster.api.put(CONTENTS, {"metadata": {"name": "old-0"}, "spec": member})
        given = {"source": {"volumeSnapshotContentName": "old-0"}}
        cluster.api.put(SNAPSHOTS, {"metadata": {"name": "s", "namespace": "ns"}, "spec": given})
        cluster.api.put(GROUPS, _group(class_name=None, volumeGroupSnapshotContentName="old"))
        group = await _ready(cluster)
        content = cluster.api.get(GROUP_CONTENTS, "old") or {}
        assert content["spec"]["volumeGroupSnapshotRef"]["uid"] == meta.uid(group)
        await until(lambda: get_str(cluster.snapshot(), "status", "volumeGroupSnapshotName") == "g")
        assert [owner["uid"] for owner in meta.owner_references(cluster.snapshot())] == [meta.uid(group)]
        cluster.api.put(GROUPS, _group("thief", None, volumeGroupSnapshotContentName="old"))
        await _error(cluster, "VolumeGroupSnapshotContent [old] is bound to a different group", "thief")
        await _delete(cluster)
        await until(lambda: not cluster.api.list(CONTENTS) and not cluster.api.list(GROUP_CONTENTS))
        assert not driver.groups
        assert not driver.requests("DeleteSnapshot")


async def test_what_a_group_lacks_is_said_in_its_status(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        cluster.api.put(GROUPS, _group())
        cluster.api.put(GROUPS, _group("lost", volumeGroupSnapshotContentName="none"))
        await _error(cluster, "label selector app=db for group snapshot not applied to any PVC")
        await _error(cluster, "VolumeGroupSnapshotContent is missing", "lost")
        await _database(cluster)
        await _ready(cluster)  # the claims' own events bring the group back
        cluster.api.put(GROUPS, _group("classless", "none"))
        missing = 'volumegroupsnapshotclass.groupsnapshot.storage.k8s.io "none" not found'
        await _error(cluster, f"failed to get group snapshot class with error {missing}", "classless")
        foreign = {"metadata": {"name": "foreign"}, "driver": "other", "deletionPolicy": "Delete"}
        cluster.api.put(kinds.VOLUME_GROUP_SNAPSHOT_CLASSES, foreign)
        cluster.api.put(GROUPS, _group("mixed", "foreign"))
        await _error(cluster, f"Volume CSI driver ({NAME}) mismatch with VolumeGroupSnapshotClass", "mixed")


async def test_the_driver_gets_the_secrets_of_the_class(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    secret = {"metadata": {"name": "key", "namespace": "ns"}, "data": {"token": "czNjcmV0"}}
    cluster.api.put(resources.SECRETS, secret)
    key = "csi.storage.k8s.io/group-snapshotter-secret"
    parameters = {f"{key}-name": "key", f"{key}-namespace": "${volumegroupsnapshot.namespace}", "a": "b"}
    document = {"metadata": {"name": "secret"}, "driver": NAME, "deletionPolicy": "Delete"}
    cluster.api.put(kinds.VOLUME_GROUP_SNAPSHOT_CLASSES, {**document, "parameters": parameters})
    async with running(cluster, driver, tmp_path, "provisioner,snapshotter", GATE, snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group(class_name="secret"))
        await _ready(cluster)
        await _delete(cluster)
        await until(lambda: not _left(cluster))
        asked, deleted = (driver.requests(f"{verb}VolumeGroupSnapshot")[0] for verb in ("Create", "Delete"))
        assert dict(asked.parameters) == {"a": "b"}
        assert dict(asked.secrets) == dict(deleted.secrets) == {"token": "s3cret"}


async def test_without_the_gate_no_group_is_taken(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, "provisioner,snapshotter", snapshots=True):
        await _database(cluster)
        cluster.api.put(GROUPS, _group())
        await cluster.event("CreatingGroupSnapshot")
        cluster.api.put(SNAPSHOTS, _alone())
        await cluster.ready("alone")
        assert not driver.requests("CreateVolumeGroupSnapshot")
        await _delete(cluster)
        await until(lambda: not cluster.api.list(GROUPS))


def _alone(**metadata: Any) -> JsonObject:
    spec = {"source": {"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": "snap"}
    return {"metadata": {"name": "alone", "namespace": "ns", **metadata}, "spec": spec}


async def test_a_users_own_owner_reference_leaks_no_snapshot(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(takes_groups=True)
    async with running(cluster, driver, tmp_path, *PARTS, snapshots=True):
        await _database(cluster)
        cluster.api.put(SNAPSHOTS, _alone())
        await cluster.ready("alone")
        owner = {
            "apiVersion": GROUPS.api_version,
            "kind": GROUPS.kind,
            "name": "none",
            "uid": "nobody",
        }
        async with cluster.api.client() as client:
            forged = {
                "metadata": {"ownerReferences": [owner]},
                "status": {"boundVolumeSnapshotContentName": None},
            }
            await client.patch(SNAPSHOTS, "alone", forged, "ns", type="merge")
        await _delete(cluster, SNAPSHOTS, "alone")
        await until(lambda: not cluster.api.list(SNAPSHOTS) and not cluster.api.list(CONTENTS))
        assert not driver.snapshots
