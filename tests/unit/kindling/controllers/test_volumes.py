"""Claims, persistent_volumes, and what keeps them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.objects import pod

from kindling.controllers.volumes import ephemeral_volumes, expansion, persistent_volumes, protection
from kubecore.json import JsonObject
from kubecore.resources import (
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTRIBUTES_CLASSES,
)

from .conftest import Cluster

pytestmark = pytest.mark.looptime


def claim(name: str = "c", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "lab"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


def volume(name: str = "pv", size: str = "2Gi", **spec: Any) -> JsonObject:
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
            **spec,
        },
        "status": {"phase": "Pending"},
    }


async def test_a_claim_gets_the_smallest_volume_that_fits(cluster: Cluster) -> None:
    for name, size in (("small", "500Mi"), ("right", "2Gi"), ("big", "9Gi")):
        cluster.api.put(PERSISTENT_VOLUMES, volume(name, size))
    async with cluster.running(persistent_volumes.VolumeController):
        assert cluster.get(PERSISTENT_VOLUMES, "big")["status"]["phase"] == "Available"
        cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
        await asyncio.sleep(2)
        bound = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        assert bound["spec"]["volumeName"] == "right"
        assert bound["metadata"]["annotations"] == {
            "pv.kubernetes.io/bound-by-controller": "yes",
            "pv.kubernetes.io/bind-completed": "yes",
        }
        assert bound["status"] == {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "2Gi"},
        }
        right = cluster.get(PERSISTENT_VOLUMES, "right")
        assert right["status"]["phase"] == "Bound"
        assert right["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]


async def test_a_claim_gets_the_default_class_that_came_later(cluster: Cluster) -> None:
    waiting = claim()
    waiting["spec"].pop("storageClassName", None)
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, waiting)
    without = claim("without")
    without["spec"]["storageClassName"] = ""
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, without)
    async with cluster.running(persistent_volumes.VolumeController):
        await asyncio.sleep(1)
        marked = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": "fast", "annotations": marked}
        cluster.api.put(STORAGE_CLASSES, {"metadata": metadata, "provisioner": "csi.example.com"})
        await asyncio.sleep(2)
    assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["spec"]["storageClassName"] == "fast"
    assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "without", "lab")["spec"]["storageClassName"] == ""


async def test_a_released_volume_is_free_again_once_its_reference_is_cleared(cluster: Cluster) -> None:
    cluster.api.put(PERSISTENT_VOLUMES, volume())
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController):
        await asyncio.sleep(1)
        cluster.api.remove(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        await asyncio.sleep(1)
        assert cluster.get(PERSISTENT_VOLUMES, "pv")["status"]["phase"] == "Released"
        cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim("d"))
        await asyncio.sleep(1)
        assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "d", "lab")["status"]["phase"] == "Pending"
        await cluster.client.patch(PERSISTENT_VOLUMES, "pv", {"spec": {"claimRef": None}}, type="merge")
        await asyncio.sleep(2)
        assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "d", "lab")["status"]["phase"] == "Bound"


async def test_a_claim_whose_volume_is_gone_is_lost(cluster: Cluster) -> None:
    cluster.api.put(PERSISTENT_VOLUMES, volume())
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController):
        await asyncio.sleep(1)
        cluster.api.remove(PERSISTENT_VOLUMES, "pv")
        await asyncio.sleep(1)
    assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["status"]["phase"] == "Lost"


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("WaitForFirstConsumer", "WaitForFirstConsumer"), ("Immediate", "ExternalProvisioning")],
)
async def test_a_pending_claim_says_what_it_waits_for(cluster: Cluster, mode: str, reason: str) -> None:
    found = {"metadata": {"name": "local"}, "provisioner": "csi.example.com", "volumeBindingMode": mode}
    cluster.api.put(STORAGE_CLASSES, found)
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController):
        await asyncio.sleep(2)
    assert {event["reason"] for event in cluster.api.list(EVENTS)} == {reason}
    annotations = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["metadata"].get("annotations", {})
    asked = annotations.get("volume.kubernetes.io/storage-provisioner") == "csi.example.com"
    assert asked == (mode == "Immediate")


async def test_a_claim_of_a_class_without_provisioner_says_that_nobody_provisions_it(
    cluster: Cluster,
) -> None:
    none = "kubernetes.io/no-provisioner"
    cluster.api.put(STORAGE_CLASSES, {"metadata": {"name": "local"}, "provisioner": none})
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController):
        await asyncio.sleep(2)
    [event] = cluster.api.list(EVENTS)
    assert (event["type"], event["reason"]) == ("Warning", "ProvisioningFailed")
    assert event["message"] == f"no volume plugin matched name: {none}"


async def test_a_claim_that_others_write_says_no_more_often_what_it_waits_for(cluster: Cluster) -> None:
    found = {"metadata": {"name": "local"}, "provisioner": "csi.example.com"}
    cluster.api.put(STORAGE_CLASSES, found)
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController):
        for number in range(30):
            annotations = {"metadata": {"annotations": {"progress": str(number)}}}
            await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", annotations, "lab", type="merge")
            await asyncio.sleep(0.5)
        [event] = cluster.api.list(EVENTS)
        assert event["count"] <= 2
        await asyncio.sleep(2 * persistent_volumes.RETRY_SECONDS)
        [event] = cluster.api.list(EVENTS)
        assert event["count"] >= 3


async def test_a_claim_with_a_source_takes_only_the_volume_that_was_filled_for_it(cluster: Cluster) -> None:
    """Any other volume would be empty."""
    source = {"apiGroup": "example.com", "kind": "Backup", "name": "b"}
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim(dataSourceRef=source))
    cluster.api.put(PERSISTENT_VOLUMES, volume("empty"))
    async with cluster.running(persistent_volumes.VolumeController):
        assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["status"]["phase"] == "Pending"
        uid = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["metadata"]["uid"]
        reference = {"namespace": "lab", "name": "c", "uid": uid}
        cluster.api.put(PERSISTENT_VOLUMES, volume("filled", claimRef=reference))
        await asyncio.sleep(2)
        assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["spec"]["volumeName"] == "filled"
    assert cluster.get(PERSISTENT_VOLUMES, "empty")["status"]["phase"] == "Available"


async def test_a_claim_takes_only_volumes_of_its_attributes_class(cluster: Cluster) -> None:
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim(volumeAttributesClassName="fast"))
    cluster.api.put(PERSISTENT_VOLUMES, volume("plain", "1Gi"))
    cluster.api.put(PERSISTENT_VOLUMES, volume("fast", "9Gi", volumeAttributesClassName="fast"))
    async with cluster.running(persistent_volumes.VolumeController):
        await asyncio.sleep(1)
    assert cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["spec"]["volumeName"] == "fast"


@pytest.mark.parametrize(("source", "kind"), [("csi", "Normal"), ("hostPath", "Warning")])
async def test_growing_waits_for_an_external_controller(cluster: Cluster, source: str, kind: str) -> None:
    backed = volume()
    backed["spec"][source] = {"path": "/x"}
    cluster.api.put(PERSISTENT_VOLUMES, backed)
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController, expansion.VolumeExpansion):
        await asyncio.sleep(1)
        assert cluster.api.list(EVENTS) == []
        larger = {"spec": {"resources": {"requests": {"storage": "5Gi"}}}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", larger, "lab", type="merge")
        await asyncio.sleep(1)
    (event,) = cluster.api.list(EVENTS)
    assert (event["type"], event["reason"]) == (kind, "ExternalExpanding")
    assert event["message"] == "waiting for an external controller to expand this PVC"


async def test_a_volume_that_outgrew_its_file_system_is_bound_with_the_size_of_that(cluster: Cluster) -> None:
    before = "volume.alpha.kubernetes.io/pre-resize-capacity"
    grown = volume(size="5Gi", csi={"driver": "d"})
    grown["metadata"]["annotations"] = {before: "2Gi"}
    cluster.api.put(PERSISTENT_VOLUMES, grown)
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    async with cluster.running(persistent_volumes.VolumeController, expansion.VolumeExpansion):
        await asyncio.sleep(1)
        bound = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        assert bound["status"]["capacity"] == {"storage": "2Gi"}
        assert before in cluster.get(PERSISTENT_VOLUMES, "pv")["metadata"]["annotations"]
        done = {"status": {"capacity": {"storage": "5Gi"}}}
        await cluster.client.patch(
            PERSISTENT_VOLUME_CLAIMS, "c", done, "lab", type="merge", subresource="status"
        )
        await asyncio.sleep(1)
    assert before not in cluster.get(PERSISTENT_VOLUMES, "pv")["metadata"].get("annotations", {})


async def test_an_ephemeral_volume_has_a_claim_that_its_pod_owns(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"l": "m"}}, "spec": claim()["spec"]}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    cluster.api.put(PODS, pod(volumes=[scratch]))
    async with cluster.running(ephemeral_volumes.EphemeralVolumes):
        (found,) = cluster.api.list(PERSISTENT_VOLUME_CLAIMS)
    assert (found["metadata"]["name"], found["metadata"]["labels"]) == ("p-scratch", {"l": "m"})
    assert found["metadata"]["ownerReferences"][0]["kind"] == "Pod"


async def test_a_claim_in_use_is_kept_until_its_pod_is_gone(cluster: Cluster) -> None:
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    using = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    cluster.api.put(PODS, pod(volumes=using))
    async with cluster.running(protection.VolumeProtection):
        found = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        assert found["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        await asyncio.sleep(1)
        assert cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab") is not None
        cluster.api.remove(PODS, "p", "lab")
        await asyncio.sleep(1)
        assert cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab") is None


async def test_an_attributes_class_is_kept_while_a_claim_or_volume_has_it(cluster: Cluster) -> None:
    for name in ("used", "coming", "unused"):
        cluster.api.put(VOLUME_ATTRIBUTES_CLASSES, {"metadata": {"name": name}, "driverName": "d"})
    changing = claim(volumeAttributesClassName="used")
    changing["status"] = {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "coming"}}
    cluster.api.put(PERSISTENT_VOLUME_CLAIMS, changing)
    async with cluster.running(protection.VolumeProtection):
        for name in ("used", "coming", "unused"):
            await cluster.client.delete(VOLUME_ATTRIBUTES_CLASSES, name)
        await asyncio.sleep(1)
        kept = [found["metadata"]["name"] for found in cluster.api.list(VOLUME_ATTRIBUTES_CLASSES)]
        assert sorted(kept) == ["coming", "used"]
        done = {"spec": {"volumeAttributesClassName": None}, "status": {"modifyVolumeStatus": None}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", done, "lab", type="merge")
        await cluster.client.patch(
            PERSISTENT_VOLUME_CLAIMS, "c", done, "lab", type="merge", subresource="status"
        )
        await asyncio.sleep(1)
        assert cluster.api.list(VOLUME_ATTRIBUTES_CLASSES) == []
