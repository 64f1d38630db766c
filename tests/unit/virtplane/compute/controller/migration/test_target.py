"""The launcher that a guest moves to."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.migration.target import image_digests, render_target
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod

_DIGEST = "sha256:" + "a" * 64


def _source(image: str, image_id: str, name: str = "volumeroot") -> JsonObject:
    entry = {"name": name, "image": image, "imageID": image_id}
    return {"status": {"initContainerStatuses": [entry], "containerStatuses": [{"name": "compute"}]}}


@pytest.mark.parametrize(
    ("image_id", "pinned"),
    [
        (f"registry.test/disk@{_DIGEST}", {"root": f"registry.test/disk@{_DIGEST}"}),
        (f"docker-pullable://registry.test/disk@{_DIGEST}", {"root": f"registry.test/disk@{_DIGEST}"}),
        (f"registry.test:5000/disk@{_DIGEST}", {"root": f"registry.test:5000/disk@{_DIGEST}"}),
        (_DIGEST, {}),
        (f"docker://{_DIGEST}", {}),
        ("", {}),
    ],
)
def test_an_image_is_pinned_by_a_digest_that_it_has(image_id: str, pinned: dict[str, str]) -> None:
    """An image that was loaded into the node's store has only an ID there, which no registry knows."""
    assert image_digests(_source("registry.test/disk:latest", image_id)) == pinned


def test_images_without_a_digest_keep_their_name_on_the_target() -> None:
    vmi: JsonObject = {
        "metadata": {"name": "vmi", "namespace": "ns", "uid": "u1"},
        "spec": {
            "domain": {"devices": {}, "memory": {"guest": "128Mi"}},
            "volumes": [{"name": "root", "containerDisk": {"image": "disk:latest"}}],
        },
    }
    digests = image_digests(_source("docker.io/library/disk:latest", _DIGEST))
    inputs = RenderInputs(
        decode(VirtualMachineInstance, vmi),
        ClusterConfig(None),
        Images("launcher:1", "s:1"),
        image_digests=digests,
    )
    document = {"metadata": {"name": "m", "uid": "m1"}, "spec": {}}
    migration = decode(VirtualMachineInstanceMigration, document)
    target = render_target(inputs, migration, None)
    (volume,) = [item for item in target["spec"]["volumes"] if item["name"] == "root"]
    assert volume["image"]["reference"] == "disk:latest"
    names = {render_target(inputs, migration, None)["metadata"]["name"], target["metadata"]["name"]}
    assert len(names) == 1
    assert names.isdisjoint({render_launcher_pod(inputs)["metadata"]["name"]})
