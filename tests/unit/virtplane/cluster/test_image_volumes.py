"""Whether launcher pods get guests' images as volumes or by containers that hold them."""

from __future__ import annotations

import pytest

from kubecore import resources
from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.labels import SCHEDULABLE
from virtplane.cluster.imagevolumes import (
    ImageVolumeSupport,
    node_mounts_images,
    nodes_mount_images,
)
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod


def _node(runtime: str, *, features: tuple[str, ...] = (), schedulable: bool = True) -> JsonObject:
    status: JsonObject = {"nodeInfo": {"containerRuntimeVersion": runtime}}
    if features:
        status["declaredFeatures"] = list(features)
    return {"metadata": {"labels": {SCHEDULABLE: "true"} if schedulable else {}}, "status": status}


@pytest.mark.parametrize(
    ("runtime", "mounts"),
    [
        ("containerd://1.7.24", False),
        ("containerd://2.0.5", False),
        ("containerd://2.1.0", True),
        ("containerd://2.10.1-rc.1", True),
        ("containerd://v2.1.4", True),
        ("cri-o://1.30.4", False),
        ("cri-o://1.31.0", True),
        ("docker://27.1.1", False),
        ("", False),
    ],
)
def test_a_node_s_runtime_says_whether_it_mounts_images(runtime: str, mounts: bool) -> None:
    assert node_mounts_images(_node(runtime)) is mounts


def test_a_node_may_declare_that_it_mounts_images() -> None:
    assert node_mounts_images(_node("containerd://1.6.20", features=("ImageVolume",)))


def test_one_node_for_guests_that_cannot_decides_for_all() -> None:
    able, unable = _node("containerd://2.1.0"), _node("containerd://1.7.0")
    assert nodes_mount_images([able, able])
    assert not nodes_mount_images([able, unable])


def test_nodes_without_guests_do_not_count() -> None:
    able, elsewhere = _node("containerd://2.1.0"), _node("containerd://1.7.0", schedulable=False)
    assert nodes_mount_images([able, elsewhere])
    assert not nodes_mount_images([elsewhere])


def test_nodes_without_a_kubelet_do_not_count() -> None:
    able, silent = _node("containerd://2.1.0"), _node("")
    assert nodes_mount_images([able, silent])


def _answer_pods(api: MemoryApi, error: StatusError) -> None:
    def refuse(request: Request) -> StatusError | None:
        return error if request.method == "POST" and request.path.endswith("/pods") else None

    api.reactions.append(refuse)


async def test_an_api_server_that_accepts_the_field_serves_image_volumes() -> None:
    api = MemoryApi([])
    support = ImageVolumeSupport(api.client(), "kubevirt")
    await support.ask()
    assert support.usable([_node("containerd://2.1.0")])
    assert not support.usable([_node("containerd://1.7.0")])
    assert api.list(resources.PODS) == []


async def test_an_api_server_that_refuses_the_field_does_not() -> None:
    api = MemoryApi([])
    _answer_pods(api, StatusError(422, "Invalid", "spec.volumes[0]: Required value"))
    support = ImageVolumeSupport(api.client(), "kubevirt")
    await support.ask()
    assert not support.usable([_node("containerd://2.1.0")])


async def test_an_api_server_that_cannot_answer_leaves_the_last_answer_standing() -> None:
    api = MemoryApi([])
    support = ImageVolumeSupport(api.client(), "kubevirt")
    await support.ask()
    _answer_pods(api, StatusError(503, "ServiceUnavailable", "later"))
    await support.ask()
    assert support.usable([_node("containerd://2.1.0")])


def test_a_launcher_without_image_volumes_holds_each_image_in_a_container() -> None:
    disk = {"name": "root", "containerDisk": {"image": "disk:1"}}
    domain = {"devices": {"disks": [{"name": "root"}]}}
    vmi = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u1"},
        "spec": {"domain": domain, "volumes": [disk]},
    }
    config = ClusterConfig({"spec": {"configuration": {}}})
    images = Images(launcher="launcher:1", sidecar="")
    pod = render_launcher_pod(
        RenderInputs(decode(VirtualMachineInstance, vmi), config, images, nodes_mount_images=False)
    )
    assert not [volume for volume in pod["spec"]["volumes"] if "image" in volume]
    holder = next(item for item in pod["spec"]["containers"] if item["name"] == "volumeroot")
    assert (holder["image"], holder["args"][-1]) == ("disk:1", "container-disk-root")
    assert "--image-volume" not in pod["spec"]["containers"][0]["args"]
