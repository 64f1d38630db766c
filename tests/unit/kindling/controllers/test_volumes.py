"""Claims, volumes, and what keeps them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.objects import pod

from kindling.controllers import (
    ephemeral_volumes,
    volume_protection,
    volumes,
)
from kubecore.json import JsonObject
from kubecore.resources import (
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
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
    async with cluster.running(volumes.VolumeController):
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
    async with cluster.running(volumes.VolumeController):
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
    async with cluster.running(volumes.VolumeController):
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
    async with cluster.running(volumes.VolumeController):
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
    async with cluster.running(volumes.VolumeController):
        await asyncio.sleep(2)
    assert {event["reason"] for event in cluster.api.list(EVENTS)} == {reason}
    annotations = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")["metadata"].get("annotations", {})
    asked = annotations.get("volume.kubernetes.io/storage-provisioner") == "csi.example.com"
    assert asked == (mode == "Immediate")


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
    async with cluster.running(volume_protection.VolumeProtection):
        found = cluster.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        assert found["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "lab")
        await asyncio.sleep(1)
        assert cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab") is not None
        cluster.api.remove(PODS, "p", "lab")
        await asyncio.sleep(1)
        assert cluster.api.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab") is None
