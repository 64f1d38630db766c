"""A server of disks in the cluster, and a registry with one of them, for the tests of this folder."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.e2e.claims import CLAIMS
from tests.e2e.clusters import NAMESPACE, Cluster
from tests.e2e.programs import registries
from tests.e2e.programs.manifests import apply, load_balancer_addresses, wait_rolled_out
from tests.e2e.programs.volumes import disks
from tests.e2e.programs.volumes.disks import Disks
from tests.e2e.support import wait_for

_CDI = "/apis/cdi.kubevirt.io/v1beta1/cdis/cdi"
_REGISTRY = f"{registries.NAME}.{NAMESPACE}.svc.cluster.local:{registries.PORT}"
_LASTING = {disks.NAME, registries.NAME}
"""Claims that stay as long as the servers."""


@pytest.fixture(scope="package")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="package")
def images(
    three_nodes: Cluster, guest_archive: Path, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disks]:
    """nginx with disks that were uploaded as an archive; among them that of the demo guest."""
    cluster, folder = three_nodes, tmp_path_factory.mktemp("images")
    made = disks.make_disks(folder)
    (folder / "guest.img").write_bytes(disks.disk_of_container_image(guest_archive))
    cluster.load(guest_archive)
    wanted = disks.data_volume(disks.NAME, {"upload": {}}, size=400 * disks.MIB, contentType="archive")
    cluster.request("POST", disks.DATA_VOLUMES, wanted)
    configuration = tmp_path_factory.mktemp("server")
    try:
        disks.wait_phase(cluster, disks.NAME, "UploadReady")
        assert disks.upload(cluster, disks.NAME, made.archive()) == 200
        disks.wait_phase(cluster, disks.NAME, "Succeeded")
        apply(cluster, configuration, *disks.server(authority))
        wait_rolled_out(cluster, f"deployment/{disks.NAME}")
        yield made
    finally:
        if (configuration / "manifest.json").exists():
            cluster.kubectl("delete", "-f", str(configuration / "manifest.json"), seconds=60)
        cluster.request("DELETE", f"{disks.DATA_VOLUMES}/{disks.NAME}")


def _claims(cluster: Cluster) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.items(CLAIMS)}


@pytest.fixture
def filled(three_nodes: Cluster, images: Disks) -> Iterator[Cluster]:
    """The cluster with the server of disks; data volumes of a test are deleted after it."""
    yield three_nodes
    names = [each["metadata"]["name"] for each in three_nodes.items(disks.DATA_VOLUMES)]
    for name in names:
        if name != disks.NAME:
            three_nodes.request("DELETE", f"{disks.DATA_VOLUMES}/{name}")
    wait_for("the claims are gone", lambda: _claims(three_nodes) <= _LASTING, 60)


@pytest.fixture(scope="package")
def container_image(
    three_nodes: Cluster, images: Disks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a container image with the disk, in a docker-registry that CDI trusts without TLS."""
    cluster, folder = three_nodes, tmp_path_factory.mktemp("registry")
    apply(cluster, folder, *registries.manifests())
    cluster.request("PATCH", _CDI, {"spec": {"config": {"insecureRegistries": [_REGISTRY]}}})
    try:
        wait_rolled_out(cluster, "deployment/registry")
        client = registries.Client(load_balancer_addresses(cluster, registries.NAME)[0])
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(images.folder / "disk.qcow2", "disk/disk.qcow2")

        def pushed() -> bool:
            client.push("disk", packed.getvalue())
            return True

        wait_for("the registry answers", pushed, 30)
        yield f"docker://{_REGISTRY}/disk:latest"
    finally:
        cluster.kubectl("delete", "-f", str(folder / "manifest.json"), seconds=60)
