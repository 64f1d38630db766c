"""Volumes come to nodes and leave them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_csi_driver import EVERYTHING, NAME, FakeDriver, Fault
from tests.support.waiting import until
from tests.unit.virtplane.storage.csi.cluster import VOLUMES, TestCluster, running

from kubecore import resources
from kubecore.json import JsonObject, get_object, get_str
from virtplane.storage.csi.attacher import finalizer_of

ATTACHMENTS = resources.VOLUME_ATTACHMENTS
FINALIZER = "external-attacher/fake-csi-example-com"


@pytest.fixture
def cluster() -> TestCluster:
    cluster = TestCluster()
    drivers = [{"name": NAME, "nodeID": "node-one", "topologyKeys": []}]
    cluster.api.put(resources.CSI_NODES, {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    csi = {"driver": NAME, "volumeHandle": "h", "volumeAttributes": {"a": "b"}, "readOnly": True}
    spec = {
        "accessModes": ["ReadWriteOncePod"],
        "capacity": {"storage": "1Gi"},
        "csi": csi,
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Block",
    }
    cluster.api.put(VOLUMES, {"metadata": {"name": "pv"}, "spec": spec})
    return cluster


def _attachment(name: str = "va", node: str = "n1", **source: Any) -> JsonObject:
    source = source or {"persistentVolumeName": "pv"}
    spec = {"attacher": NAME, "nodeName": node, "source": source}
    return {"metadata": {"name": name}, "spec": spec}


def _status(cluster: TestCluster, name: str = "va") -> JsonObject:
    return get_object(cluster.api.get(ATTACHMENTS, name) or {}, "status")


@pytest.mark.parametrize(
    ("driver", "finalizer"),
    [("a.b", "external-attacher/a-b"), ("a.", "external-attacher/a-X")],
)
def test_the_finalizer_is_made_of_the_drivers_name(driver: str, finalizer: str) -> None:
    assert finalizer_of(driver) == finalizer


def _error(cluster: TestCluster, name: str) -> JsonObject:
    return get_object(_status(cluster, name), "attachError")


async def test_a_volume_is_attached_and_detached(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, "attacher"):
        cluster.api.put(ATTACHMENTS, _attachment())
        await until(lambda: _status(cluster).get("attached"))
        assert _status(cluster) == {"attached": True, "attachmentMetadata": {"device": "/dev/h"}}
        request = driver.requests("ControllerPublishVolume")[0]
        assert (request.volume_id, request.node_id, request.readonly) == ("h", "node-one", True)
        assert request.volume_capability.WhichOneof("access_type") == "block"
        assert request.volume_capability.access_mode.mode == 6  # a single writer: the driver can tell
        assert FINALIZER in (cluster.api.get(VOLUMES, "pv") or {})["metadata"]["finalizers"]
        metadata = (cluster.api.get(ATTACHMENTS, "va") or {})["metadata"]
        assert metadata["finalizers"] == [FINALIZER]
        assert metadata["annotations"] == {"csi.alpha.kubernetes.io/node-id": "node-one"}
        # The node is gone: what was written down is enough.
        cluster.api.remove(resources.CSI_NODES, "n1")
        async with cluster.api.client() as client:
            await client.delete(VOLUMES, "pv")
            await client.delete(ATTACHMENTS, "va")
        await until(lambda: cluster.api.get(ATTACHMENTS, "va") is None)
        await until(lambda: cluster.api.get(VOLUMES, "pv") is None)
    assert not driver.published


async def test_errors_are_told_in_the_status_and_tried_again(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver(
        faults={
            "ControllerPublishVolume": [Fault("UNAVAILABLE", happens=True)] * 2,
            "ControllerUnpublishVolume": [Fault("INTERNAL", "busy")],
        }
    )
    async with running(cluster, driver, tmp_path, "attacher"):
        cluster.api.put(ATTACHMENTS, _attachment())
        await until(lambda: "Unavailable" in get_str(_status(cluster), "attachError", "message"))
        await until(lambda: _status(cluster).get("attached"))
        assert "attachError" not in _status(cluster)
        async with cluster.api.client() as client:
            await client.delete(ATTACHMENTS, "va")
        await until(
            lambda: (
                cluster.api.get(ATTACHMENTS, "va") is None
                or "desc = busy" in get_str(_status(cluster), "detachError", "message")
            )
        )
        await until(lambda: cluster.api.get(ATTACHMENTS, "va") is None)
    assert len(driver.requests("ControllerUnpublishVolume")) == 2


async def test_what_cannot_be_attached_says_why(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    inline = {"csi": {"driver": NAME, "volumeHandle": "i"}, "accessModes": ["ReadWriteMany"]}
    found = {
        "nobody": (_attachment("nobody", "n2"), 'csinode.storage.k8s.io "n2" not found'),
        "lost": (_attachment("lost", persistentVolumeName="gone"), 'persistentvolume "gone" not found'),
        "none": (_attachment("none", other=1), "neither InlineCSIVolumeSource nor PersistentVolumeName"),
        "both": (
            _attachment("both", persistentVolumeName="pv", inlineVolumeSpec=inline),
            "both InlineCSIVolumeSource and PersistentVolumeName specified in VA source",
        ),
    }
    async with running(cluster, driver, tmp_path, "attacher"):
        for document, _ in found.values():
            cluster.api.put(ATTACHMENTS, document)
        for name, (_, text) in found.items():
            await until(partial(_error, cluster, name))
            assert text in _status(cluster, name)["attachError"]["message"]
            assert _status(cluster, name)["attached"] is False
        cluster.api.put(ATTACHMENTS, _attachment("inline", inlineVolumeSpec=inline))
        await until(lambda: _status(cluster, "inline").get("attached"))
    assert {request.volume_id for request in driver.requests("ControllerPublishVolume")} == {"i"}


async def test_volumes_that_need_no_attaching_are_attached_at_once(
    cluster: TestCluster, tmp_path: Path
) -> None:
    driver = FakeDriver(controller=EVERYTHING - {"PUBLISH_UNPUBLISH_VOLUME"})
    async with running(cluster, driver, tmp_path, "attacher"):
        cluster.api.put(ATTACHMENTS, _attachment())
        await until(lambda: _status(cluster).get("attached"))
    assert "ControllerPublishVolume" not in driver.methods()


async def test_what_the_driver_has_lost_is_attached_again(cluster: TestCluster, tmp_path: Path) -> None:
    driver = FakeDriver()
    async with running(cluster, driver, tmp_path, "attacher", "--reconcile-sync=20ms"):
        cluster.api.put(ATTACHMENTS, _attachment())
        await until(lambda: driver.published and _status(cluster).get("attached"))
        driver.published.clear()
        await until(lambda: driver.published)
    assert driver.published == {("h", "node-one")}
