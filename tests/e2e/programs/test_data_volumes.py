"""Data volumes from nginx, docker-registry, nodes and clients: what arrives, and how failures are told."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, manifest
from tests.e2e.failures import Document
from tests.e2e.programs import disks, registries
from tests.e2e.programs.disks import (
    DATA_VOLUMES,
    SIZE,
    Disks,
    condition,
    data_volume,
    from_http,
    phase,
    sums,
    upload,
    wait_phase,
)
from tests.e2e.programs.manifests import apply, document, load_balancer_addresses, wait_rolled_out
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]

_CLAIMS = f"{CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims"
_EVENTS = f"{CORE}/namespaces/{NAMESPACE}/events"
_CDI = "/apis/cdi.kubevirt.io/v1beta1/cdis/cdi"
_REGISTRY = f"{registries.NAME}.{NAMESPACE}.svc.cluster.local:{registries.PORT}"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def images(
    three_nodes: Cluster, guest_archive: Path, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disks]:
    """nginx with disks that were uploaded as an archive; among them that of the demo guest."""
    cluster, folder = three_nodes, tmp_path_factory.mktemp("images")
    made = disks.make_disks(folder)
    (folder / "guest.img").write_bytes(disks.disk_of_container_image(guest_archive))
    cluster.load(guest_archive)
    wanted = data_volume(disks.NAME, {"upload": {}}, size=400 * disks.MIB, contentType="archive")
    cluster.request("POST", DATA_VOLUMES, wanted)
    configuration = tmp_path_factory.mktemp("server")
    try:
        wait_phase(cluster, disks.NAME, "UploadReady")
        assert upload(cluster, disks.NAME, made.archive()) == 200
        wait_phase(cluster, disks.NAME, "Succeeded")
        apply(cluster, configuration, *disks.server(authority))
        wait_rolled_out(cluster, f"deployment/{disks.NAME}")
        yield made
    finally:
        if (configuration / "manifest.json").exists():
            cluster.kubectl("delete", "-f", str(configuration / "manifest.json"), seconds=60)
        cluster.request("DELETE", f"{DATA_VOLUMES}/{disks.NAME}")


@pytest.fixture
def cluster(three_nodes: Cluster, images: Disks) -> Iterator[Cluster]:
    """The cluster, with the server; data volumes of a test are deleted after it."""
    yield three_nodes
    names = [each["metadata"]["name"] for each in three_nodes.items(DATA_VOLUMES)]
    for name in names:
        if name != disks.NAME:
            three_nodes.request("DELETE", f"{DATA_VOLUMES}/{name}")
    wait_for("the claims are gone", lambda: len(three_nodes.items(_CLAIMS)) <= 1, 60)


def create(cluster: Cluster, *wanted: Document) -> None:
    for each in wanted:
        cluster.request("POST", DATA_VOLUMES, each)


def arrived(cluster: Cluster, images: Disks, modes: dict[str, str]) -> None:
    """Check that volumes have the disk."""
    for name in modes:
        wait_phase(cluster, name, "Succeeded", 120)
    wanted = hashlib.sha256(images.content).hexdigest()
    assert sums(cluster, modes) == dict.fromkeys(modes, wanted)


@pytest.mark.feature("STO-33", "STO-34", "STO-35")
def test_disks_of_every_format_and_packing_arrive_whole(cluster: Cluster, images: Disks) -> None:
    modes = {}
    for number, file in enumerate(name for name in images.names if name != "guest.img"):
        name, mode = file.replace(".", "-"), ("Filesystem", "Block")[number % 2]
        folder = "whole/" if number % 3 == 2 else ""
        create(cluster, data_volume(name, from_http(folder + file), mode=mode))
        modes[name] = mode
    arrived(cluster, images, modes)


def test_server_with_its_own_authority_a_password_and_a_checksum(
    cluster: Cluster, images: Disks, authority: trustme.CA
) -> None:
    folder = images.folder.parent
    pem = authority.cert_pem.bytes().decode()
    secret = disks.secret("reader", accessKeyId=disks.USER, secretKey=disks.PASSWORD)
    apply(cluster, folder, document("ConfigMap", "authority", data={"ca.pem": pem}), secret)
    digest = hashlib.sha256((images.folder / "disk.qcow2").read_bytes()).hexdigest()
    url = f"https://{disks.HOST}:{disks.TLS_PORT}/disk.qcow2"
    trusted: Document = {"url": url, "certConfigMap": "authority", "secretRef": "reader"}
    good = {"http": {**trusted, "checksum": f"sha256:{digest}"}}
    wrong = {"http": {**trusted, "checksum": f"sha256:{'0' * 64}"}}
    create(cluster, data_volume("good", good), data_volume("wrong", wrong))
    create(cluster, data_volume("untrusted", {"http": {"url": url, "secretRef": "reader"}}))
    create(cluster, data_volume("moved", from_http("moved/disk.raw")))
    arrived(cluster, images, {"good": "Filesystem", "moved": "Filesystem"})

    def told(name: str, text: str) -> bool:
        return text in condition(cluster, name, "Running").get("message", "")

    wait_for("the checksum is wrong", lambda: told("wrong", "checksum mismatch"), 60)
    wait_for("the authority is unknown", lambda: told("untrusted", "certificate"), 60)
    assert "disk.img" not in str(cluster.find(f"{_CLAIMS}/wrong"))
    assert phase(cluster, "wrong") != "Succeeded"
    assert disks.PASSWORD not in str(cluster.items(_EVENTS))


@pytest.mark.parametrize(
    ("path", "size", "text"),
    [
        ("missing.raw", SIZE, "expected status code 200, got 404"),
        ("kept/disk.raw", SIZE, "expected status code 200, got 403"),
        ("broken/disk.raw", SIZE, "expected status code 200, got 500"),
    ],
)
def test_refusals_of_a_server_are_told_and_tried_again(
    cluster: Cluster, path: str, size: int, text: str
) -> None:
    create(cluster, data_volume("refused", from_http(path), size=size))
    wait_for("it is told", lambda: text in condition(cluster, "refused", "Running").get("message", ""), 60)
    wait_for(
        "it is tried again",
        lambda: (
            cluster.request("GET", f"{DATA_VOLUMES}/refused").get("status", {}).get("restartCount", 0) >= 2
        ),
        60,
    )
    claim = cluster.request("GET", f"{_CLAIMS}/refused")
    assert claim["status"]["phase"] == "Pending"


def test_disk_that_does_not_fit_is_refused(cluster: Cluster) -> None:
    create(cluster, data_volume("small", from_http("guest.img"), size=disks.MIB))
    text = "DataVolume too small to contain image"
    wait_for(
        "the size is told", lambda: text in condition(cluster, "small", "Running").get("message", ""), 60
    )


@pytest.mark.feature("STO-36", "STO-37")
def test_registry_and_node_bring_disks_of_container_images(cluster: Cluster, images: Disks) -> None:
    folder = images.folder.parent
    apply(cluster, folder, *registries.manifests())
    path = {"spec": {"config": {"insecureRegistries": [_REGISTRY]}}}
    cluster.request("PATCH", _CDI, path)
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
        pull = {"registry": {"url": f"docker://{_REGISTRY}/disk:latest"}}
        create(cluster, data_volume("pulled", pull))
        node = {"registry": {"url": "docker://virtplane.local/demo-guest:latest", "pullMethod": "node"}}
        create(cluster, data_volume("by-node", node, size=256 * disks.MIB))
        arrived(cluster, images, {"pulled": "Filesystem"})
        wait_phase(cluster, "by-node", "Succeeded")
    finally:
        cluster.kubectl("delete", "-f", str(folder / "manifest.json"), seconds=60)


@pytest.mark.feature("STO-49")
@pytest.mark.parametrize("path", ["upload", "upload-async"])
def test_what_clients_upload_arrives(cluster: Cluster, images: Disks, path: str) -> None:
    modes = {"files": "Filesystem", "blocks": "Block"}
    for name, mode in modes.items():
        create(cluster, data_volume(name, {"upload": {}}, mode=mode))
    for name in modes:
        wait_phase(cluster, name, "UploadReady")
        assert upload(cluster, name, (images.folder / "disk.qcow2").read_bytes(), path) == 200
    arrived(cluster, images, modes)


@pytest.mark.guest
@pytest.mark.feature("VMC-44")
def test_machine_boots_the_disk_that_its_template_imports(cluster: Cluster) -> None:
    wanted = manifest("imported", grace=2)
    template = data_volume("imported-root", from_http("guest.img"), size=256 * disks.MIB)
    wanted["spec"]["dataVolumeTemplates"] = [template]
    spec = wanted["spec"]["template"]["spec"]
    spec["volumes"][0] = {"name": "root", "dataVolume": {"name": "imported-root"}}
    machine = cluster.create(wanted)
    try:
        wait_for("the machine runs", machine.is_running, 120)
        with machine.console() as console:
            assert console.run("hostname") == "imported"
        source = cluster.request("GET", f"{DATA_VOLUMES}/imported-root")
        assert source["metadata"]["ownerReferences"][0]["name"] == "imported"
    finally:
        clean_up([machine])
    wait_for("its disk goes with it", lambda: cluster.find(f"{DATA_VOLUMES}/imported-root") is None, 30)
